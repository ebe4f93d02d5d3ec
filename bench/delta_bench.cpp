// Time of GatedDeltaNet in one layer between its projections, token by token against blocks, in
// turn (a-b-b-a) and by the classes that the engine uses: delta_bench [threads] [key heads] [value
// heads] [key dim] [value dim]. The states of 30 layers are passed through, so that a decoded token
// finds them in memory and not in the caches, as in a model.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "runtime/model/delta_net.h"
#include "runtime/model/kernels.h"

namespace moepack {
namespace {

constexpr std::uint32_t kWidth = 8;  // hidden size: projections cost next to nothing
constexpr std::size_t kLayers = 30;
constexpr std::size_t kPrompt = 512;

struct Matrix {
  std::vector<float> values;
  QMatrixView view;
};

Matrix make_matrix(std::uint64_t rows, std::uint64_t cols, std::mt19937& random) {
  Matrix m;
  std::normal_distribution<float> normal(0.0F, 0.2F);
  m.values.resize(rows * cols);
  for (float& f : m.values) f = normal(random);
  m.view.format = {.id = QFormatId::kF32};
  m.view.rows = rows;
  m.view.cols = cols;
  m.view.data = {std::as_bytes(std::span(m.values)).data()};
  return m;
}

std::vector<float> make_vector(std::size_t count, float mean, float deviation,
                               std::mt19937& random) {
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(count);
  for (float& f : values) f = normal(random);
  return values;
}

class Bench {
 public:
  Bench(const ModelConfig& config, std::size_t threads, std::size_t tokens, Activations activations)
      : config_(config),
        activations_(std::move(activations)),
        by_tokens_(table()),
        blocks_(table()),
        compute_tokens_((by_tokens_.delta_block = nullptr, by_tokens_), threads,
                        activations_.matmul_scratch),
        compute_blocks_(blocks_, threads, activations_.matmul_scratch),
        net_(config_, activations_),
        tokens_(tokens) {
    const std::size_t value = std::size_t{config.linear_value_heads} * config.linear_value_dim;
    for (const std::uint64_t rows :
         {conv_channels(config), std::uint64_t{value}, std::uint64_t{config.linear_value_heads},
          std::uint64_t{config.linear_value_heads}}) {
      matrices_.push_back(make_matrix(rows, kWidth, random_));
    }
    matrices_.push_back(make_matrix(1, value, random_));
    weights_.in_qkv = matrices_[0].view;
    weights_.in_z = matrices_[1].view;
    weights_.in_b = matrices_[2].view;
    weights_.in_a = matrices_[3].view;
    weights_.out = matrices_[4].view;
    weights_.conv = make_vector(config.linear_conv_taps * conv_channels(config), 0, 0.5F, random_);
    weights_.decay_rate = make_vector(config.linear_value_heads, -0.1F, 0.01F, random_);
    weights_.dt_bias = make_vector(config.linear_value_heads, 0, 0.5F, random_);
    weights_.norm = make_vector(config.linear_value_dim, 1, 0.1F, random_);
    input_ = make_vector(tokens * kWidth, 0, 1, random_);
    output_.resize(tokens);
    for (std::size_t i = 0; i < kLayers; ++i) {
      states_.push_back(LayerState::create(config, LayerSpec{.mixer = GatedDeltaNetSpec{}}, 4096,
                                           StateForm{.kv = {}, .delta = DeltaForm::kBlocks})
                            .value());
    }
  }

  // Microseconds a token and layer. Without mixing: what the projections of this size cost.
  double run(bool blocks, std::size_t layers, bool mixes = true) {
    Compute& compute = blocks ? compute_blocks_ : compute_tokens_;
    const std::clock_t cpu_start = std::clock();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < layers; ++i) {
      Status status;
      const LayerSlice slice{&states_[i % kLayers], position_, 0, tokens_, &status};
      net_.forward(compute, weights_, std::span(&slice, mixes ? 1 : 0), input_.data(), tokens_,
                   output_.data());
    }
    if (mixes) position_ += tokens_;
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    const auto cpu = static_cast<double>(std::clock() - cpu_start) * 1e6 / CLOCKS_PER_SEC;
    // One thread: processor time, which says the same on a busy machine.
    return (compute.pool().size() == 1 ? cpu : time.count()) /
           static_cast<double>(layers * tokens_);
  }

 private:
  static Kernels table() { return *cpu_kernels(detect_cpu_level()).value(); }

  ModelConfig config_;
  Activations activations_;
  Kernels by_tokens_;
  Kernels blocks_;
  Compute compute_tokens_;
  Compute compute_blocks_;
  DeltaNet net_;
  std::size_t tokens_;
  std::mt19937 random_{7};
  std::vector<Matrix> matrices_;
  DeltaNetWeights weights_;
  std::vector<float> input_;
  std::vector<float> output_;
  std::vector<LayerState> states_;
  std::uint64_t position_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const ModelConfig& config, std::size_t threads, std::size_t tokens) {
  Bench bench(
      config, threads, tokens,
      Activations::create(config, {.tokens = tokens, .threads = threads, .context = 4096}).value());
  const std::size_t layers = tokens == 1 ? kLayers : 2;
  const std::size_t rounds = tokens == 1 ? 4 * kDeltaBlock : 3;  // whole blocks of decoded tokens
  std::vector<double> by_tokens;
  std::vector<double> blocks;
  for (std::size_t turn = 0; turn < 12; ++turn) {
    const bool is_blocks = turn % 4 == 1 || turn % 4 == 2;
    double sum = 0;
    for (std::size_t i = 0; i < rounds; ++i) sum += bench.run(is_blocks, layers);
    (is_blocks ? blocks : by_tokens).push_back(sum / static_cast<double>(rounds));
  }
  std::vector<double> projections;
  for (std::size_t i = 0; i < 9; ++i) projections.push_back(bench.run(true, kLayers, false));
  const double rest = median(projections);
  for (double& time : by_tokens) time -= rest;
  for (double& time : blocks) time -= rest;
  std::printf("projections %.2f us; ", rest);
  std::printf("%zu threads, %4zu tokens: token by token %7.2f us, blocks of %zu %7.2f us, x %.2f\n",
              threads, tokens, median(by_tokens), kDeltaBlock, median(blocks),
              median(by_tokens) / median(blocks));
}

}  // namespace
}  // namespace moepack

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint32_t otherwise) {
    return argc > i ? static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)) : otherwise;
  };
  moepack::ModelConfig config;
  config.hidden_size = moepack::kWidth;
  config.linear_key_heads = number(2, 16);
  config.linear_value_heads = number(3, 32);
  config.linear_key_dim = number(4, 128);
  config.linear_value_dim = number(5, 128);
  config.linear_conv_taps = 4;
  config.rms_norm_eps = 1e-6F;
  config.vocab_size = 1;
  if (number(6, 1) != 0) moepack::measure(config, number(1, 1), 1);
  if (number(7, 1) != 0) moepack::measure(config, number(1, 1), moepack::kPrompt);
  return 0;
}
