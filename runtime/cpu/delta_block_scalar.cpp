// The block form of the gated delta rule in plain C++: what the SIMD kernels are compared with, and
// what the level "scalar" computes.
#include <algorithm>
#include <cmath>

#include "runtime/cpu/kernel_tables.h"
#include "runtime/model/delta_block.h"

namespace moepack {
namespace {

float silu(float x) { return x / (1.0F + std::exp(-x)); }

// y += a * x.
void add_scaled(float a, const float* __restrict x, float* __restrict y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] += a * x[i];
}

void convolve(const DeltaConvolution& c) {
  std::fill(c.out, c.out + c.width, 0.0F);
  for (std::size_t j = 0; j < c.taps; ++j) {
    const float* x =
        j < c.kept_taps ? c.kept + j * c.stride : c.fresh + (j - c.kept_taps) * c.stride;
    const float* w = c.w + j * c.stride;
    for (std::size_t i = 0; i < c.width; ++i) c.out[i] += w[i] * x[i];
  }
  for (std::size_t i = 0; i < c.width; ++i) c.out[i] = silu(c.out[i]);
}

void scale(float factor, float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
}

void row_products(const float* keys, std::size_t rows, const float* k, const float* q,
                  std::size_t n, float* of_k, float* of_q) {
  const auto dot = reference_kernels().dot;
  for (std::size_t j = 0; j < rows; ++j) {
    of_k[j] = dot(keys + j * n, k, n);
    of_q[j] = dot(keys + j * n, q, n);
  }
}

void state_products(const DeltaProducts& p) {
  for (std::size_t t = 0; t < p.tokens; ++t) {
    float* of_k = p.of_k + t * p.value_dim;
    float* of_q = p.of_q + t * p.q_stride;
    std::fill(of_k, of_k + p.value_dim, 0.0F);
    std::fill(of_q, of_q + p.value_dim, 0.0F);
    for (std::size_t i = 0; i < p.key_dim; ++i) {
      const float* row = p.state + i * p.value_dim;
      add_scaled(p.k[t * p.key_dim + i], row, of_k, p.value_dim);
      add_scaled(p.q[t * p.key_dim + i], row, of_q, p.value_dim);
    }
  }
}

void mix_row(const DeltaRow& r) {
  float* u = r.values + r.row * r.value_dim;
  for (std::size_t c = 0; c < r.value_dim; ++c) {
    float seen = r.decay * r.of_k[c];
    float out = r.decay * r.out[c];
    for (std::size_t j = 0; j < r.row; ++j) {
      seen += r.from_k[j] * r.values[j * r.value_dim + c];
      out += r.from_q[j] * r.values[j * r.value_dim + c];
    }
    u[c] = r.beta * (u[c] - seen);
    r.out[c] = out + r.from_q[r.row] * u[c];
  }
}

void advance(const DeltaAdvance& a) {
  for (std::size_t i = 0; i < a.key_dim; ++i) {
    float* row = a.state + i * a.value_dim;
    scale(a.decay, row, a.value_dim);
    for (std::size_t j = 0; j < kDeltaBlock; ++j) {
      add_scaled(a.k[j * a.key_dim + i], a.u + j * a.value_dim, row, a.value_dim);
    }
  }
}

void gate(const float* x, float factor, const float* weights, const float* gates, std::size_t n,
          float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * factor * weights[i] * silu(gates[i]);
}

constexpr DeltaBlockKernels kScalar{
    .convolve = convolve,
    .scale = scale,
    .row_products = row_products,
    .state_products = state_products,
    .mix_row = mix_row,
    .advance = advance,
    .gate = gate,
};

}  // namespace

const DeltaBlockKernels& scalar_delta_block() { return kScalar; }

}  // namespace moepack
