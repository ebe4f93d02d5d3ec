// Speed of the CPU kernels. Matrix-vector products stream weights once, so their measure is bytes a
// second as a share of the rate at which the same threads merely read memory (measured first, in
// the same run); products with many tokens are measured in floating-point operations a second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/random_weights.h"
#include "formats/base/file.h"
#include "formats/weights/row_order.h"
#include "runtime/model/input_scratch.h"
#include "runtime/model/kernels.h"
#include "runtime/model/thread_pool.h"
#include "runtime/speed/read_rate.h"

namespace moepack {
namespace {

constexpr std::size_t kStreamBytes = std::size_t{1} << 30;  // beyond any last-level cache here
constexpr std::uint64_t kCols = 2048;
constexpr std::size_t kGrainRows = 256;
constexpr std::size_t kRowUnit = 32;  // what matrices have a multiple of
constexpr std::size_t kAlignment = 4096;

ThreadPool& pool_of(std::size_t threads) {
  static std::map<std::size_t, std::unique_ptr<ThreadPool>> pools;
  std::unique_ptr<ThreadPool>& pool = pools[threads];
  if (!pool) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

double read_rate(std::size_t threads) {
  static std::map<std::size_t, double> rates;
  double& rate = rates[threads];
  if (rate == 0) rate = measure_read_rate(threads).value();
  return rate;
}

struct Matrix {
  QMatrixView view;
  AlignedBuffer weight;  // in large pages, as a model's are
  AlignedBuffer scales;
  std::size_t bytes() const { return weight.size() + 2 * scales.size(); }
};

AlignedBuffer allocate(std::size_t bytes) {
  return AlignedBuffer::allocate(bytes, kAlignment).value();
}

// Random codes and scales in the order of the format.
void fill_rows(const WeightFormat& format, std::uint64_t rows, Matrix& matrix) {
  if (format.row_order == RowOrder::kRows) {
    return fill_random(format, matrix.weight.span(), matrix.scales.span());
  }
  AlignedBuffer weight = allocate(matrix.weight.size());
  AlignedBuffer scales = allocate(matrix.scales.size());
  fill_random(in_order(format, RowOrder::kRows), weight.span(), scales.span());
  const auto reorder = [&](Component component, const AlignedBuffer& from, AlignedBuffer& to) {
    rows_to_order(format, component, rows, from.size() / rows, from.data(), to.data());
  };
  reorder(Component::kCodes, weight, matrix.weight);
  reorder(Component::kScales, scales, matrix.scales);
}

// Random codes with small scales, `rows` as many as fill `bytes`.
Matrix make_matrix(const WeightFormat& format, std::size_t bytes) {
  Matrix matrix;
  const MatrixBytes row = matrix_bytes(format, 1, kCols).value();
  const std::uint64_t rows = bytes / row.total() / kRowUnit * kRowUnit;
  const MatrixBytes all = matrix_bytes(format, rows, kCols).value();
  matrix.weight = allocate(all.codes());
  matrix.scales = allocate(all[Component::kScales]);
  fill_rows(format, rows, matrix);
  matrix.view = {.format = format,
                 .rows = rows,
                 .cols = kCols,
                 .data = affine_components<const std::byte*>(
                     matrix.weight.data(), matrix.scales.data(), matrix.scales.data())};
  return matrix;
}

struct Case {
  CpuLevel level;
  WeightFormat format;
  std::size_t bytes;
  std::size_t tokens;
  std::size_t threads;
};

void count_work(benchmark::State& state, const Case& c, const Matrix& matrix) {
  const auto runs = static_cast<double>(state.iterations());
  const double bytes = static_cast<double>(matrix.bytes()) * runs;
  const double flops = 2.0 * static_cast<double>(matrix.view.rows * kCols * c.tokens) * runs;
  if (c.tokens <= 3) {
    state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
    state.counters["of_read"] =
        benchmark::Counter(bytes / read_rate(c.threads), benchmark::Counter::kIsRate);
  }
  state.counters["GFLOP/s"] = benchmark::Counter(flops / 1e9, benchmark::Counter::kIsRate);
}

// Repeats multiply(begin, end, y, scratch) over all rows of the matrix, shared among the threads.
template <typename Multiply>
void run_rows(benchmark::State& state, const Case& c, const Matrix& matrix,
              const Multiply& multiply) {
  std::vector<float> y(c.tokens * matrix.view.rows);
  std::vector<std::vector<float>> scratch(c.threads,
                                          std::vector<float>(matmul_scratch_floats(kCols)));
  for ([[maybe_unused]] auto _ : state) {
    pool_of(c.threads).parallel_for(matrix.view.rows, kGrainRows,
                                    [&](std::size_t begin, std::size_t end, std::size_t worker) {
                                      multiply(begin, end, y.data(), scratch[worker]);
                                    });
    benchmark::ClobberMemory();
  }
  count_work(state, c, matrix);
}

void run_matmul(benchmark::State& state, const Case& c) {
  const Kernels& kernels = *cpu_kernels(c.level).value();
  const Matrix matrix = make_matrix(c.format, c.bytes);
  const std::vector<float> x(c.tokens * kCols, 0.25F);
  run_rows(state, c, matrix, [&](std::size_t begin, std::size_t end, float* y, auto& scratch) {
    kernels.matmul(matrix.view, x.data(), kCols, c.tokens, begin, end, y, matrix.view.rows,
                   scratch);
  });
}

// The same with inputs as bytes.
void run_codes(benchmark::State& state, const Case& c, std::size_t digits) {
  const CodeKernels& kernels = cpu_kernels(c.level).value()->codes;
  const Matrix matrix = make_matrix(c.format, c.bytes);
  const std::vector<float> x(c.tokens * kCols, 0.25F);
  const std::size_t stride = token_stride(kCols, digits);
  std::vector<InputBlock> blocks(c.tokens * stride);
  std::vector<const InputBlock*> rows;
  for (std::size_t t = 0; t < c.tokens; ++t) {
    kernels.quantize(x.data() + t * kCols, kCols, digits, &blocks[t * stride]);
    rows.push_back(&blocks[t * stride]);
  }
  run_rows(state, c, matrix, [&](std::size_t begin, std::size_t end, float* y, auto& scratch) {
    kernels.multiply(
        {matrix.view, rows.data(), digits, c.tokens, begin, end, y, matrix.view.rows, scratch});
  });
}

void run_memory_read(benchmark::State& state, std::size_t threads) {
  double best = 0;
  for ([[maybe_unused]] auto _ : state) best = std::max(best, measure_read_rate(threads).value());
  state.counters["GB/s"] = best / 1e9;
}

// 32 heads of 128 x 128, as one layer of the larger published models has: 2 MiB read and written.
void run_delta(benchmark::State& state, CpuLevel level) {
  constexpr std::size_t kHeads = 32;
  constexpr std::size_t kDim = 128;
  const Kernels& kernels = *cpu_kernels(level).value();
  std::vector<float> heads(kHeads * kDim * kDim, 0.5F);
  const std::vector<float> vector(kDim, 0.01F);
  std::vector<float> out(kDim);
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t h = 0; h < kHeads; ++h) {
      kernels.gated_delta_step(heads.data() + h * kDim * kDim, vector.data(), vector.data(),
                               vector.data(), 0.99F, 0.5F, kDim, kDim, out.data());
    }
    benchmark::ClobberMemory();
  }
  const double bytes = static_cast<double>(heads.size() * sizeof(float) * 2);
  state.counters["GB/s"] = benchmark::Counter(bytes * static_cast<double>(state.iterations()) / 1e9,
                                              benchmark::Counter::kIsRate);
}

void run_swiglu(benchmark::State& state, CpuLevel level) {
  const Kernels& kernels = *cpu_kernels(level).value();
  const std::vector<float> gate(4096, 0.7F);
  std::vector<float> out(4096, 0.1F);
  for ([[maybe_unused]] auto _ : state) {
    kernels.swiglu(gate.data(), gate.data(), out.data(), out.size());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(out.size()) * state.iterations());
}

void register_matmul(const Case& c, const std::string& kind) {
  const std::string shape = std::string(cpu_level_name(c.level)) + "/" + to_string(c.format) +
                            "/tokens:" + std::to_string(c.tokens) +
                            "/threads:" + std::to_string(c.threads);
  benchmark::RegisterBenchmark((kind + "/" + shape).c_str(), run_matmul, c)->UseRealTime();
  if (!cpu_kernels(c.level).value()->codes.supports(c.format)) return;
  for (const std::size_t digits : {std::size_t{1}, std::size_t{2}}) {
    std::string name = kind;
    name.append(digits == 1 ? "_i8/" : "_i16/").append(shape);
    benchmark::RegisterBenchmark(name.c_str(), run_codes, c, digits)->UseRealTime();
  }
}

void register_format(CpuLevel level, const WeightFormat& format, std::size_t threads) {
  register_matmul({level, format, kStreamBytes, 1, threads}, "matvec_memory");
  register_matmul({level, format, std::size_t{256} << 10, 1, threads}, "matvec_cache");
  register_matmul({level, format, kStreamBytes, 3, threads}, "matvec_memory");
  register_matmul({level, format, kStreamBytes, 16, threads}, "matmul_memory");  // as experts are
  for (std::size_t tokens : {4U, 8U, 16U, 64U, 512U}) {
    register_matmul({level, format, std::size_t{2} << 20, tokens, threads}, "matmul");
  }
}

void register_level(CpuLevel level, std::size_t threads) {
  for (const QFormatInfo& info : qformats()) {
    const WeightFormat rows{.id = info.id, .group_size = info.kind == QKind::kAffine ? 64U : 0U};
    register_format(level, rows, threads);
    if (has_panels(rows)) register_format(level, in_order(rows, RowOrder::kPanels), threads);
  }
}

void register_all() {
  std::vector<std::size_t> thread_counts{1};
  if (std::thread::hardware_concurrency() > 1) thread_counts.push_back(2);
  if (std::thread::hardware_concurrency() > 4) {
    thread_counts.push_back(std::thread::hardware_concurrency());
  }
  for (std::size_t threads : thread_counts) {
    benchmark::RegisterBenchmark(("memory_read/threads:" + std::to_string(threads)).c_str(),
                                 run_memory_read, threads)
        ->Iterations(3);
  }
  for (CpuLevel level : kCpuLevels) {
    if (!has_cpu_level(level)) continue;
    const std::string name(cpu_level_name(level));
    benchmark::RegisterBenchmark(("gated_delta/" + name).c_str(), run_delta, level);
    benchmark::RegisterBenchmark(("swiglu/" + name).c_str(), run_swiglu, level);
    for (std::size_t threads : thread_counts) register_level(level, threads);
  }
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  moepack::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
