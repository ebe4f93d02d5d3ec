// Attention over blocks: the bits of a token depend on nothing but its sequence, and a long context
// agrees with the same in double.
#include "runtime/model/block_attention.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "runtime/model/kv_cache.h"
#include "tests/support/status_matchers.h"

namespace moepack::block_attention_test {
namespace {

constexpr std::size_t kHeads = 6;
constexpr std::size_t kKvHeads = 2;
constexpr std::size_t kHeadDim = 40;
constexpr std::size_t kWidth = kHeads * kHeadDim;
constexpr std::size_t kKvWidth = kKvHeads * kHeadDim;

ModelConfig small_config() {
  ModelConfig config;
  config.num_heads = kHeads;
  config.num_kv_heads = kKvHeads;
  config.head_dim = kHeadDim;
  return config;
}

std::vector<float> random_values(std::size_t count, float magnitude, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, magnitude);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A text: queries with gates, keys and values of every position.
struct Text {
  Text(std::size_t tokens, std::uint32_t seed)
      : queries(random_values(tokens * 2 * kWidth, 0.5F, seed)),
        keys(random_values(tokens * kKvWidth, 1.0F, seed + 1)),
        values(random_values(tokens * kKvWidth, 1.0F, seed + 2)) {}
  std::vector<float> queries;
  std::vector<float> keys;
  std::vector<float> values;
};

// What tokens see beside those before them.
struct Seen {
  std::optional<std::uint32_t> window = std::nullopt;
  std::vector<float> sinks = {};  // [kHeads], or none
};

class Runner {
 public:
  Runner(KvEncoding encoding, std::size_t threads, std::size_t tokens, std::size_t context,
         const Seen& seen)
      : kernels_(cpu_kernels(detect_cpu_level()).value()),
        activations_(Activations::create(small_config(),
                                         {.tokens = tokens, .threads = threads, .context = context})
                         .value()),
        compute_(*kernels_, threads, activations_.matmul_scratch),
        attention_(full_attention_shape(small_config().heads_of({})), activations_),
        context_(context),
        encoding_(encoding),
        seen_(seen) {}

  LayerState state() const {
    return LayerState::create(small_config(), LayerSpec{}, context_,
                              state_form(*kernels_, encoding_))
        .value();
  }

  struct Part {
    const Text* text;
    LayerState* state;
    std::size_t position;
    std::size_t count;
  };

  // One batch of several texts; the attended rows one after the other.
  std::vector<float> run(const std::vector<Part>& parts) {
    std::vector<Status> statuses(parts.size());
    std::vector<LayerSlice> slices;
    std::size_t row = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      slices.push_back({part.state, part.position, row, part.count, &statuses[i]});
      std::copy_n(part.text->queries.data() + part.position * 2 * kWidth, part.count * 2 * kWidth,
                  activations_.query_gate.data() + row * 2 * kWidth);
      EXPECT_TRUE(part.state->kv
                      ->store(part.position, part.count,
                              part.text->keys.data() + part.position * kKvWidth,
                              part.text->values.data() + part.position * kKvWidth)
                      .is_ok());
      row += part.count;
    }
    attention_.attend(compute_, slices,
                      {.queries = activations_.query_gate.data(),
                       .query_stride = 2 * kHeadDim,
                       .out = activations_.attended.data(),
                       .out_stride = kHeadDim,
                       .has_gate = true,
                       .sinks = seen_.sinks,
                       .window = seen_.window.value_or(kMaxSequenceTokens)});
    return {activations_.attended.begin(),
            activations_.attended.begin() + static_cast<std::ptrdiff_t>(row * kWidth)};
  }

 private:
  const Kernels* kernels_;
  Activations activations_;
  Compute compute_;
  BlockAttention attention_;
  std::size_t context_;
  KvEncoding encoding_;
  Seen seen_;
};

// A text cut into pieces of `piece` tokens (the first of `first`), beside another that takes one
// token in every call.
std::vector<float> cut(const Text& text, std::size_t tokens, KvEncoding encoding,
                       std::size_t threads, std::size_t first, std::size_t piece,
                       const Text* beside, const Seen& seen = {}) {
  Runner runner(encoding, threads, std::max(first, piece) + 1, tokens, seen);
  LayerState state = runner.state();
  LayerState other = runner.state();
  std::vector<float> rows;
  std::size_t calls = 0;
  for (std::size_t done = 0; done < tokens; ++calls) {
    const std::size_t count = std::min(done == 0 ? first : piece, tokens - done);
    std::vector<Runner::Part> parts;
    if (beside != nullptr) parts.push_back({beside, &other, calls, 1});
    parts.push_back({&text, &state, done, count});
    const std::vector<float> got = runner.run(parts);
    rows.insert(rows.end(), got.begin() + (beside != nullptr ? kWidth : 0), got.end());
    done += count;
  }
  return rows;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class BlockAttentionTest : public testing::TestWithParam<KvEncoding> {};

TEST_P(BlockAttentionTest, BitsDoNotDependOnCutsThreadsOrNeighbours) {
  constexpr std::size_t kTokens = 411;
  const Text text(kTokens, 1);
  const Text beside(kTokens, 11);
  const std::vector<float> whole = cut(text, kTokens, GetParam(), 1, kTokens, 1, nullptr);
  EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 3, kTokens, 1, nullptr)));
  EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 1, 1, 1, nullptr)));
  EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 3, 1, 1, &beside)));
  EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 2, 77, 129, nullptr)));
  EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 8, 300, 5, &beside)));
  EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 8, 127, 64, &beside)));
}

// The last tokens of 4096, from unencoded keys and values, in double.
std::vector<double> exact(const Text& text, std::size_t position, std::size_t head,
                          const Seen& seen = {}) {
  const std::size_t kv_head = head / (kHeads / kKvHeads);
  const float* query = text.queries.data() + (position * kHeads + head) * 2 * kHeadDim;
  std::vector<double> scores(position + 1);
  const std::size_t window = seen.window.value_or(position + 1);
  const std::size_t begin = position + 1 - std::min(window, position + 1);
  for (std::size_t j = begin; j <= position; ++j) {
    const float* key = text.keys.data() + j * kKvWidth + kv_head * kHeadDim;
    for (std::size_t d = 0; d < kHeadDim; ++d) scores[j] += static_cast<double>(query[d]) * key[d];
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out(kHeadDim);
  double sum = seen.sinks.empty() ? 0 : std::exp(static_cast<double>(seen.sinks[head]) - top);
  for (std::size_t j = begin; j <= position; ++j) {
    const double weight = std::exp(scores[j] - top);
    sum += weight;
    const float* value = text.values.data() + j * kKvWidth + kv_head * kHeadDim;
    for (std::size_t d = 0; d < kHeadDim; ++d) out[d] += weight * value[d];
  }
  for (std::size_t d = 0; d < kHeadDim; ++d) {
    out[d] /= sum * (1 + std::exp(-static_cast<double>(query[kHeadDim + d])));
  }
  return out;
}

// The mean of thousands of random values is small beside what rounding each of them does.
double tolerance(KvEncoding encoding) {
  switch (encoding) {
    case KvEncoding::kFloat16:
      return 2e-3;
    case KvEncoding::kBfloat16:
      return 1e-2;
    case KvEncoding::kFp8:
      return 1.5e-1;
    default:
      return 2e-6;
  }
}

TEST_P(BlockAttentionTest, ALongContextAgreesWithDouble) {
  constexpr std::size_t kTokens = 4096;
  constexpr std::size_t kLast = 9;
  const Text text(kTokens, 5);
  const std::vector<float> rows =
      cut(text, kTokens, GetParam(), 2, kTokens - kLast, kLast, nullptr);
  double error = 0;
  double norm = 0;
  for (std::size_t position = kTokens - kLast; position < kTokens; ++position) {
    for (std::size_t head = 0; head < kHeads; ++head) {
      const std::vector<double> want = exact(text, position, head);
      for (std::size_t d = 0; d < kHeadDim; ++d) {
        const double got = rows[(position * kHeads + head) * kHeadDim + d];
        error += (got - want[d]) * (got - want[d]);
        norm += want[d] * want[d];
      }
    }
  }
  const double relative = std::sqrt(error / norm);
  RecordProperty("relative_error", std::to_string(relative));
  EXPECT_LT(relative, tolerance(GetParam()));
}

// Windows within a block, of a block, over several, and longer than the text, with a sink for each
// head; cut in several ways.
TEST_P(BlockAttentionTest, WindowsAndSinksAgreeWithDoubleHoweverCut) {
  constexpr std::size_t kTokens = 411;
  const Text text(kTokens, 3);
  const Text beside(kTokens, 13);
  for (const std::uint32_t window : {1U, 8U, 128U, 150U, 300U, 1000U}) {
    SCOPED_TRACE(window);
    const Seen seen{.window = window, .sinks = {-3.0F, 0.0F, 2.0F, 9.0F, 0.5F, -20.0F}};
    const std::vector<float> whole = cut(text, kTokens, GetParam(), 1, kTokens, 1, nullptr, seen);
    EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 3, kTokens, 1, nullptr, seen)));
    EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 8, 1, 1, &beside, seen)));
    EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 2, 77, 129, nullptr, seen)));
    EXPECT_TRUE(same_bits(whole, cut(text, kTokens, GetParam(), 8, 300, 5, &beside, seen)));
    if (GetParam() != KvEncoding::kFloat32) continue;
    double error = 0;
    double norm = 0;
    for (std::size_t position = 0; position < kTokens; ++position) {
      for (std::size_t head = 0; head < kHeads; ++head) {
        const std::vector<double> want = exact(text, position, head, seen);
        for (std::size_t d = 0; d < kHeadDim; ++d) {
          const double got = whole[(position * kHeads + head) * kHeadDim + d];
          error += (got - want[d]) * (got - want[d]);
          norm += want[d] * want[d];
        }
      }
    }
    EXPECT_LT(std::sqrt(error / norm), tolerance(GetParam())) << window;
  }
}

std::string encoding_name(const testing::TestParamInfo<KvEncoding>& encoding) {
  return std::string(kv_encoding_name(encoding.param));
}

INSTANTIATE_TEST_SUITE_P(Encodings, BlockAttentionTest,
                         testing::Values(KvEncoding::kFloat32, KvEncoding::kBfloat16,
                                         KvEncoding::kFp8, KvEncoding::kFloat16),
                         encoding_name);

}  // namespace
}  // namespace moepack::block_attention_test
