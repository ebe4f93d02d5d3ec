// The attention part of a decoded token, and of a prompt, of one layer with the shape of 35B-A3B
// (16 query heads, 2 K/V heads of 256), in every encoding, beside attention over rows of float32 as
// the reference backend has it, with the same kernels. `attention_bench [DEPTH [THREADS]]`.
// GB/s: encoded keys and values a second; the rate at which the threads merely read memory comes
// first.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "runtime/model/block_attention.h"
#include "runtime/model/full_attention.h"
#include "runtime/model/kv_cache.h"

namespace moepack {
namespace {

constexpr std::size_t kLayers = 4;  // in turn, so that no cache holds all
constexpr int kRuns = 5;

ModelConfig shape() {
  ModelConfig config;
  config.hidden_size = 64;  // the projections are not what is measured
  config.num_heads = 16;
  config.num_kv_heads = 2;
  config.head_dim = 256;
  config.rotary_dim = 64;
  config.rope_theta = 1e7;
  config.rms_norm_eps = 1e-6F;
  config.layers.resize(1);
  return config;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double read_rate(std::size_t threads) {
  ThreadPool pool(threads);
  const std::vector<std::uint64_t> words(std::size_t{20} << 20, 1);
  std::vector<std::uint64_t> sums(threads * 8);
  double best = 0;
  for (int pass = 0; pass < 8; ++pass) {
    const double start = now();
    pool.parallel_for(words.size(), 1 << 15,
                      [&](std::size_t begin, std::size_t end, std::size_t w) {
                        std::uint64_t sum[8] = {};
                        for (std::size_t i = begin; i < end; i += 8) {
                          for (std::size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
                        }
                        for (std::size_t j = 0; j < 8; ++j) sums[w * 8 + j] += sum[j];
                      });
    best = std::max(best, static_cast<double>(words.size() * 8) / (now() - start));
  }
  return sums[0] == 0 ? 0 : best;
}

struct Weights {
  explicit Weights(const ModelConfig& c) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, 0.1F);
    const auto matrix = [&](std::uint64_t rows, std::uint64_t cols) {
      std::vector<float>& data = all.emplace_back(rows * cols);
      for (float& value : data) value = normal(random);
      QMatrixView view;
      view.format = {.id = QFormatId::kF32};
      view.rows = rows;
      view.cols = cols;
      view.data[Component::kCodes] = reinterpret_cast<const std::byte*>(data.data());
      return view;
    };
    all.reserve(4);
    weights.spec.has_gate = true;
    weights.q = matrix(2ULL * c.num_heads * c.head_dim, c.hidden_size);
    weights.k = matrix(std::uint64_t{c.num_kv_heads} * c.head_dim, c.hidden_size);
    weights.v = matrix(std::uint64_t{c.num_kv_heads} * c.head_dim, c.hidden_size);
    weights.o = matrix(c.hidden_size, std::uint64_t{c.num_heads} * c.head_dim);
    weights.q_norm.assign(c.head_dim, 1.0F);
    weights.k_norm.assign(c.head_dim, 1.0F);
  }
  std::vector<std::vector<float>> all;
  FullAttentionWeights weights;
};

// Median seconds of `tokens` tokens at `depth`.
double measure(const Kernels& kernels, KvEncoding encoding, std::size_t threads, std::size_t depth,
               std::size_t tokens) {
  const ModelConfig config = shape();
  const std::size_t context = depth + tokens;
  Activations activations =
      Activations::create(config, {.tokens = tokens, .threads = threads, .context = context})
          .value();
  Compute compute(kernels, threads, activations.matmul_scratch);
  FullAttention attention(config, activations);
  const Weights weights(config);
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  const std::size_t width = config.num_kv_heads * config.head_dim;
  std::vector<float> rows(256 * width);
  for (float& value : rows) value = normal(random);
  std::vector<LayerState> states;
  for (std::size_t i = 0; i < kLayers; ++i) {
    states.push_back(
        LayerState::create(config, config.layers.front(), context, state_form(kernels, encoding))
            .value());
    for (std::size_t at = 0; at < depth; at += 256) {
      (void)states[i].kv->store(at, std::min<std::size_t>(256, depth - at), rows.data(),
                                rows.data());
    }
  }
  std::vector<float> u(tokens * config.hidden_size);
  for (float& value : u) value = normal(random);
  std::vector<float> out(u.size());
  std::vector<double> times;
  for (int run = 0; run < kRuns * static_cast<int>(kLayers); ++run) {
    Status status;
    const LayerSlice slice{&states[static_cast<std::size_t>(run) % kLayers], depth, 0, tokens,
                           &status};
    const double start = now();
    attention.forward(compute, weights.weights, {&slice, 1}, u.data(), tokens, out.data());
    times.push_back(now() - start);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

void report(const char* name, double seconds, double bytes, double rate, double base) {
  std::printf("%-12s %9.3f ms  %6.2f GB/s  %5.1f %% of read rate  %6.2f x rows\n", name,
              seconds * 1e3, bytes / seconds / 1e9, 100 * bytes / seconds / rate, base / seconds);
}

int run(std::size_t depth, std::size_t threads) {
  const Kernels& best = *cpu_kernels(detect_cpu_level()).value();
  Kernels rows = best;
  rows.attention = nullptr;
  const double rate = read_rate(threads);
  std::printf("%s, %zu threads, depth %zu, read rate %.1f GB/s\n", best.name.data(), threads, depth,
              rate / 1e9);
  for (const std::size_t tokens : {std::size_t{1}, std::size_t{64}}) {
    std::printf("%zu token(s)\n", tokens);
    const double values = 2.0 * 2 * 256 * static_cast<double>(depth);
    // Of a prompt this would take minutes.
    const double base =
        tokens > 1 ? 0 : measure(rows, KvEncoding::kFloat32, threads, depth, tokens);
    if (base > 0) report("rows f32", base, 4 * values, rate, base);
    for (const KvEncoding encoding :
         {KvEncoding::kFloat32, KvEncoding::kBfloat16, KvEncoding::kFloat16, KvEncoding::kFp8}) {
      const double seconds = measure(best, encoding, threads, depth, tokens);
      report(kv_encoding_name(encoding).data(), seconds,
             values * static_cast<double>(kv_value_bytes(encoding)), rate, base);
    }
  }
  return 0;
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  const auto number = [&](int i, std::size_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  return moepack::run(number(1, 16384), number(2, 2));
}
