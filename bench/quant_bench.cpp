// What the quantizer costs beside the products and factorizations it cannot do without, measured in
// the same run: one matrix [rows, cols] with its Hessian given, refinement included.
//
// usage: quant_bench [rows cols bits rounds_of_measurement]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "quant/gptq.h"
#include "quant/grid.h"
#include "quant/refine.h"
#include "quant/tile.h"

namespace moepack {
namespace {

using Clock = std::chrono::steady_clock;

Matrix normal_matrix(std::size_t rows, std::size_t cols, float size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  Matrix m(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols));
  for (float& x : m.reshaped()) x = normal(random);
  return m;
}

// The Hessian of inputs that share a few directions.
Matrix random_hessian(std::size_t cols) {
  const std::size_t samples = cols + cols / 4;
  const std::size_t shared = cols / 8;
  Matrix x = normal_matrix(cols, samples, 1, 2);
  add_product(normal_matrix(cols, shared, 0.2F, 3), normal_matrix(samples, shared, 1, 4), x);
  Matrix h = Matrix::Zero(x.rows(), x.rows());
  add_gram(x, h);
  mirror_upper(h);
  return h / static_cast<float>(samples);
}

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Stages {
  double grid = 0, factor = 0, sweep = 0, refinement = 0;
  std::uint32_t passes = 0;
  double total() const { return grid + factor + sweep + refinement; }
};

Stages quantize(const Matrix& w, const Matrix& h, std::uint32_t bits, std::size_t rows) {
  Stages t;
  AffineMatrix q(rows, static_cast<std::size_t>(w.cols()), bits, 64);
  const std::vector<float> importance(h.diagonal().begin(), h.diagonal().end());
  t.grid = seconds_of([&] { choose_grid(GridMethod::kTwoSided, w, importance, q); });
  std::optional<GptqFactor> factor;
  t.factor = seconds_of([&] { factor = factor_hessian(h, 0.01F); });
  t.sweep = seconds_of([&] { gptq_codes(w, *factor, q); });
  t.refinement = seconds_of(
      [&] { t.passes = refine(w, h, {.passes = 4, .rounds = 2, .least_gain = 0}, q).passes; });
  return t;
}

// Seconds of LLT with the triangular inverse, and of one product [rows, cols] x [cols, cols].
struct Limits {
  double factorization = 0, product = 0;
};

Limits limits(const Matrix& w, const Matrix& h) {
  Limits t;
  Matrix a = h;
  a.diagonal().array() += 0.01F * h.diagonal().mean();
  t.factorization = seconds_of([&] { invert_cholesky(a); });
  Matrix out(w.rows(), h.cols());
  t.product = seconds_of([&] { multiply(w, h, out); });
  return t;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void run(std::size_t rows, std::size_t cols, std::uint32_t bits, int repeats) {
  const Matrix w = normal_matrix(padded_rows(rows), cols, 0.02F, 1);
  const Matrix h = random_hessian(cols);
  std::printf("[%zu, %zu], %u bits, kernels %.*s\n", rows, cols, bits,
              static_cast<int>(tile_kernels().name.size()), tile_kernels().name.data());
  std::vector<double> ratios, speedups;
  for (int i = 0; i < repeats; ++i) {
    const Limits limit = limits(w, h);
    const Stages t = quantize(w, h, bits, rows);
    const double least = limit.factorization + (1 + t.passes) * limit.product;
    ratios.push_back(t.total() / least);
    // Two matrices on two threads against one on one.
    const double two = seconds_of([&] {
      std::thread other([&] { quantize(w, h, bits, rows); });
      quantize(w, h, bits, rows);
      other.join();
    });
    speedups.push_back(2 * t.total() / two);
    std::printf(
        "grid %.3f  factor %.3f (limit %.3f)  sweep %.3f  refine %.3f in %u passes (product %.3f)"
        "  total %.3f s = %.2f x limit;  two threads %.2f x\n",
        t.grid, t.factor, limit.factorization, t.sweep, t.refinement, t.passes, limit.product,
        t.total(), ratios.back(), speedups.back());
  }
  std::printf("median %.2f x limit, two threads %.2f x\n", median(ratios), median(speedups));
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  const auto number = [&](int i, long otherwise) {
    return argc > i ? std::strtol(argv[i], nullptr, 10) : otherwise;
  };
  moepack::run(static_cast<std::size_t>(number(1, 1024)), static_cast<std::size_t>(number(2, 4096)),
               static_cast<std::uint32_t>(number(3, 2)), static_cast<int>(number(4, 5)));
  return 0;
}
