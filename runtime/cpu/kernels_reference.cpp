#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "formats/weights/qcodec.h"
#include "runtime/cpu/codes_reference.h"
#include "runtime/model/kernels.h"

namespace moepack {
namespace {

// Element i belongs to partial sum i % kPartials; the partial sums are added as a binary tree. The
// order depends on n alone, and errors grow with n / 16.
constexpr std::size_t kPartials = 16;
// Four elements at once: sanitizers check one access then, not four.
using Quad [[gnu::vector_size(4 * sizeof(float))]] = float;

Quad load_quad(const float* at) {
  Quad quad;
  std::memcpy(&quad, at, sizeof(quad));
  return quad;
}

// Each has a name, since gcc keeps an array of them, or a longer vector, in memory.
struct PartialSums {
  Quad first{};
  Quad second{};
  Quad third{};
  Quad fourth{};

  void add(const float* a, const float* b) {  // kPartials elements
    first += load_quad(a) * load_quad(b);
    second += load_quad(a + 4) * load_quad(b + 4);
    third += load_quad(a + 8) * load_quad(b + 8);
    fourth += load_quad(a + 12) * load_quad(b + 12);
  }

  void add_rest(const float* a, const float* b, std::size_t rest) {  // of kPartials elements
    std::array<float, kPartials> x{};
    std::array<float, kPartials> y{};
    std::copy_n(a, rest, x.begin());
    std::copy_n(b, rest, y.begin());
    if (rest > 0) add(x.data(), y.data());
  }

  // Sum j and sum j + 8, then 4, 2 and 1 behind each other.
  float total() const {
    const Quad all = (first + third) + (second + fourth);
    return (all[0] + all[2]) + (all[1] + all[3]);
  }
};

float dot(const float* a, const float* b, std::size_t n) {
  PartialSums sums;
  std::size_t i = 0;
  for (; i + kPartials <= n; i += kPartials) sums.add(a + i, b + i);
  sums.add_rest(a + i, b + i, n - i);
  return sums.total();
}

struct Pair {
  float of_x;
  float of_y;
};

// dot() of w with both: the sums of one would wait for each other.
Pair dots(const float* w, const float* x, const float* y, std::size_t n) {
  PartialSums of_x;
  PartialSums of_y;
  std::size_t i = 0;
  for (; i + kPartials <= n; i += kPartials) {
    of_x.add(w + i, x + i);
    of_y.add(w + i, y + i);
  }
  of_x.add_rest(w + i, x + i, n - i);
  of_y.add_rest(w + i, y + i, n - i);
  return {of_x.total(), of_y.total()};
}

void matmul(const QMatrixView& w, const float* x, std::size_t x_stride, std::size_t tokens,
            std::uint64_t row_begin, std::uint64_t row_end, float* y, std::size_t y_stride,
            std::span<float> scratch) {
  assert(row_end <= w.rows && scratch.size() >= w.cols);
  const std::span<float> row = scratch.first(w.cols);
  for (std::uint64_t r = row_begin; r < row_end; ++r) {
    decode_row(w, r, row);
    std::size_t t = 0;
    for (; t + 2 <= tokens; t += 2) {
      const float* first = x + t * x_stride;
      const Pair pair = dots(row.data(), first, first + x_stride, row.size());
      y[t * y_stride + r] = pair.of_x;
      y[(t + 1) * y_stride + r] = pair.of_y;
    }
    if (t < tokens) y[t * y_stride + r] = dot(row.data(), x + t * x_stride, row.size());
  }
}

void axpy(float a, const float* __restrict x, float* __restrict y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] += a * x[i];
}

void swiglu(const float* gate, const float* up, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float silu = gate[i] / (1.0F + std::exp(-gate[i]));
    out[i] = silu * up[i];
  }
}

void clamped_swiglu(const float* gate, const float* up, float limit, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = std::min(gate[i], limit);
    const float u = std::clamp(up[i], -limit, limit);
    out[i] = g / (1.0F + std::exp(-(kGptOssAlpha * g))) * (u + 1.0F);
  }
}

void geglu(const float* gate, const float* up, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gate[i];
    const float y = kGeluSlope * (g + kGeluCube * (g * g * g));
    out[i] = g / (1.0F + std::exp(-y)) * up[i];
  }
}

// One pass of the delta rule takes this many columns of the state, so that its intermediate fits on
// the stack.
constexpr std::size_t kDeltaColumns = 256;

// Does the step for `columns` columns of the state, whose rows are `stride` floats apart; v and out
// belong to these columns.
void delta_columns(float* __restrict state, std::size_t stride, const float* __restrict q,
                   const float* __restrict k, const float* __restrict v, float decay, float beta,
                   std::size_t key_dim, std::size_t columns, float* __restrict out) {
  std::array<float, kDeltaColumns> delta{};
  for (std::size_t i = 0; i < key_dim; ++i) {
    float* __restrict row = state + i * stride;
    for (std::size_t j = 0; j < columns; ++j) {
      row[j] *= decay;
      delta[j] += row[j] * k[i];
    }
  }
  for (std::size_t j = 0; j < columns; ++j) {
    delta[j] = beta * (v[j] - delta[j]);
    out[j] = 0.0F;
  }
  for (std::size_t i = 0; i < key_dim; ++i) {
    float* __restrict row = state + i * stride;
    for (std::size_t j = 0; j < columns; ++j) {
      row[j] += k[i] * delta[j];
      out[j] += row[j] * q[i];
    }
  }
}

// Columns do not see each other, so taking them in parts changes no bit.
void gated_delta_step(float* state, const float* q, const float* k, const float* v, float decay,
                      float beta, std::size_t key_dim, std::size_t value_dim, float* out) {
  for (std::size_t j = 0; j < value_dim; j += kDeltaColumns) {
    const std::size_t columns = std::min(kDeltaColumns, value_dim - j);
    delta_columns(state + j, value_dim, q, k, v + j, decay, beta, key_dim, columns, out + j);
  }
}

Kernels make_reference() {
  return {
      .name = "reference",
      .bits = "reference",
      .supports = can_decode,
      .matmul = matmul,
      .dot = dot,
      .axpy = axpy,
      .swiglu = swiglu,
      .clamped_swiglu = clamped_swiglu,
      .geglu = geglu,
      .gated_delta_step = gated_delta_step,
      .codes = reference_code_kernels(),
      .delta_block = nullptr,
      .attention = nullptr,
  };
}

}  // namespace

const Kernels& reference_kernels() {
  static const Kernels kTable = make_reference();
  return kTable;
}

}  // namespace moepack
