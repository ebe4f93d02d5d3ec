// Latent attention: it agrees with the form that makes every head's keys and values, in double; the
// bits of a token depend on nothing but its sequence; and a state holds compressed rows alone.
#include "runtime/model/latent_attention.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "formats/weights/qcodec.h"
#include "runtime/model/kv_cache.h"
#include "tests/support/cpu_levels.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_matrix.h"

namespace moepack::latent_attention_test {
namespace {

constexpr std::size_t kHidden = 64;
constexpr std::size_t kHeads = 5;
constexpr std::size_t kPlain = 24;  // of a head, not rotated
constexpr std::size_t kRotated = 16;
constexpr std::size_t kHead = kPlain + kRotated;
constexpr std::size_t kValue = 20;
constexpr std::size_t kRank = 40;
constexpr std::size_t kQueryRank = 48;
constexpr std::size_t kKey = kRank + kRotated;

ModelConfig small_config(bool has_query_rank) {
  ModelConfig config;
  config.hidden_size = kHidden;
  config.num_layers = 1;
  config.layers = {{.mixer = LatentAttentionSpec{.has_query_rank = has_query_rank},
                    .router = {},
                    .feed_forward = {}}};
  config.rms_norm_eps = 1e-3F;  // not that of the compressed rows
  config.num_heads = config.num_kv_heads = kHeads;
  config.head_dim = kHead;
  config.rotary_dim = kRotated;
  config.rope_theta = 1e4;
  config.rope_interleaved = true;
  config.query_rank = has_query_rank ? kQueryRank : 0;
  config.kv_rank = kRank;
  config.value_dim = kValue;
  config.yarn = YarnSpec{.factor = 4, .original_positions = 64, .softmax_factor = 1.7};
  return config;
}

std::vector<float> random_values(std::size_t count, float magnitude, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, magnitude);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

test::TestMatrix matrix(std::uint64_t rows, std::uint64_t cols, std::uint32_t seed) {
  return {{.id = QFormatId::kBf16}, rows, cols, test::Values::kUsual, 2, seed};
}

struct Layer {
  explicit Layer(bool has_query_rank)
      : config(small_config(has_query_rank)),
        q_down(matrix(kQueryRank, kHidden, 1)),
        q(matrix(kHeads * kHead, has_query_rank ? kQueryRank : kHidden, 2)),
        kv_down(matrix(kKey, kHidden, 3)),
        kv_up(matrix(kHeads * (kPlain + kValue), kRank, 4)),
        o(matrix(kHidden, kHeads * kValue, 5)) {
    weights.spec.has_query_rank = has_query_rank;
    weights.q = q.view();
    weights.kv_down = kv_down.view();
    weights.kv_up = kv_up.view();
    weights.o = o.view();
    weights.kv_norm = random_values(kRank, 1.0F, 6);
    if (!has_query_rank) return;
    weights.q_down = q_down.view();
    weights.q_down_norm = random_values(kQueryRank, 2.0F, 7);
  }

  ModelConfig config;
  test::TestMatrix q_down;
  test::TestMatrix q;
  test::TestMatrix kv_down;
  test::TestMatrix kv_up;
  test::TestMatrix o;
  LatentAttentionWeights weights;
};

const Layer& layer(bool has_query_rank = true) {
  static const Layer with(true);
  static const Layer without(false);
  return has_query_rank ? with : without;
}

struct How {
  const Kernels* kernels = &reference_kernels();
  KvEncoding encoding = KvEncoding::kFloat32;
  std::size_t threads = 1;
  std::size_t tokens = 0;  // at once
  std::size_t context = 0;
  bool has_query_rank = true;
};

class Runner {
 public:
  explicit Runner(const How& setup)
      : setup_(setup),
        of_(layer(setup.has_query_rank)),
        activations_(Activations::create(of_.config, {.tokens = setup.tokens,
                                                      .threads = setup.threads,
                                                      .context = setup.context})
                         .value()),
        compute_(*setup.kernels, setup.threads, activations_.matmul_scratch),
        attention_(of_.config, activations_) {}

  LayerState state() const {
    return LayerState::create(of_.config, LayerSpec{.mixer = LatentAttentionSpec{}}, setup_.context,
                              state_form(*setup_.kernels, setup_.encoding))
        .value();
  }

  struct Part {
    const std::vector<float>* inputs;  // [tokens, H] of the text
    LayerState* state;
    std::size_t position;
    std::size_t count;
  };

  // One batch of several texts; the rows of output one after the other.
  std::vector<float> run(const std::vector<Part>& parts) {
    std::vector<Status> statuses(parts.size());
    std::vector<LayerSlice> slices;
    std::vector<float> inputs;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      slices.push_back(
          {part.state, part.position, inputs.size() / kHidden, part.count, &statuses[i]});
      const auto first =
          part.inputs->begin() + static_cast<std::ptrdiff_t>(part.position * kHidden);
      inputs.insert(inputs.end(), first, first + static_cast<std::ptrdiff_t>(part.count * kHidden));
    }
    std::vector<float> out(inputs.size());
    attention_.forward(compute_, of_.weights, slices, inputs.data(), inputs.size() / kHidden,
                       out.data());
    for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.message();
    return out;
  }

 private:
  How setup_;
  const Layer& of_;
  Activations activations_;
  Compute compute_;
  LatentAttention attention_;
};

// A text cut into pieces of `piece` tokens (the first of `first`), beside another that takes one
// token in every call.
std::vector<float> cut(const std::vector<float>& text, How setup, std::size_t first,
                       std::size_t piece, const std::vector<float>* beside) {
  const std::size_t tokens = text.size() / kHidden;
  setup.tokens = std::max(first, piece) + 1;
  setup.context = tokens;
  Runner runner(setup);
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
    rows.insert(rows.end(), got.begin() + (beside != nullptr ? kHidden : 0), got.end());
    done += count;
  }
  return rows;
}

// ---- The expanded form, in double ---------------------------------------------------------------

using Row = std::vector<double>;

Row product(const QMatrixView& w, const Row& x) {
  Row out(w.rows);
  std::vector<float> row(w.cols);
  for (std::uint64_t r = 0; r < w.rows; ++r) {
    decode_row(w, r, row);
    for (std::uint64_t c = 0; c < w.cols; ++c) out[r] += static_cast<double>(row[c]) * x[c];
  }
  return out;
}

Row normed(const Row& x, const std::vector<float>& factor) {
  double sum = 0;
  for (std::size_t i = 0; i < factor.size(); ++i) sum += x[i] * x[i];
  const double scale = 1 / std::sqrt(sum / static_cast<double>(factor.size()) + 1e-6);
  Row out(factor.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = x[i] * scale * factor[i];
  return out;
}

void rotate(const ModelConfig& config, std::size_t position, double* pairs) {
  const Rope rope(config);
  for (std::size_t i = 0; i < rope.pairs(); ++i) {
    const double angle = static_cast<double>(position) * rope.inverse_frequency()[i];
    const double a = pairs[2 * i];
    const double b = pairs[2 * i + 1];
    pairs[2 * i] = a * std::cos(angle) - b * std::sin(angle);
    pairs[2 * i + 1] = b * std::cos(angle) + a * std::sin(angle);
  }
}

// Keys and values of all heads of a token.
struct Expanded {
  Row rotated;  // one for all heads
  Row heads;    // [heads, plain + value]
};

Row attend_head(const Row& query, const std::vector<Expanded>& seen, std::size_t head,
                double scale) {
  Row scores;
  for (const Expanded& token : seen) {
    const double* key = token.heads.data() + head * (kPlain + kValue);
    double score = 0;
    for (std::size_t i = 0; i < kPlain; ++i) score += query[head * kHead + i] * key[i];
    for (std::size_t i = 0; i < kRotated; ++i) {
      score += query[head * kHead + kPlain + i] * token.rotated[i];
    }
    scores.push_back(score * scale);
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  Row out(kValue);
  double sum = 0;
  for (std::size_t t = 0; t < seen.size(); ++t) {
    const double weight = std::exp(scores[t] - top);
    sum += weight;
    const double* value = seen[t].heads.data() + head * (kPlain + kValue) + kPlain;
    for (std::size_t i = 0; i < kValue; ++i) out[i] += weight * value[i];
  }
  for (double& value : out) value /= sum;
  return out;
}

std::vector<double> expanded(const std::vector<float>& text, bool has_query_rank) {
  const Layer& of = layer(has_query_rank);
  const LatentAttentionWeights& w = of.weights;
  const double scale = of.config.yarn->softmax_factor / std::sqrt(static_cast<double>(kHead));
  std::vector<Expanded> seen;
  std::vector<double> out;
  for (std::size_t t = 0; t < text.size() / kHidden; ++t) {
    const Row u(text.begin() + static_cast<std::ptrdiff_t>(t * kHidden),
                text.begin() + static_cast<std::ptrdiff_t>((t + 1) * kHidden));
    Row query = product(w.q, has_query_rank ? normed(product(w.q_down, u), w.q_down_norm) : u);
    for (std::size_t h = 0; h < kHeads; ++h) rotate(of.config, t, &query[h * kHead + kPlain]);
    const Row down = product(w.kv_down, u);
    Expanded token{.rotated = Row(down.begin() + kRank, down.end()),
                   .heads = product(w.kv_up, normed(down, w.kv_norm))};
    rotate(of.config, t, token.rotated.data());
    seen.push_back(std::move(token));
    Row attended;
    for (std::size_t h = 0; h < kHeads; ++h) {
      const Row head = attend_head(query, seen, h, scale);
      attended.insert(attended.end(), head.begin(), head.end());
    }
    const Row row = product(w.o, attended);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const Kernels& best_kernels() { return *cpu_kernels(detect_cpu_level()).value(); }

std::vector<float> text_of(std::size_t tokens, std::uint32_t seed) {
  return random_values(tokens * kHidden, 1.0F, seed);
}

// ---- Tests --------------------------------------------------------------------------------------

TEST(LatentAttention, AgreesWithTheExpandedForm) {
  const std::vector<float> text = text_of(150, 11);
  for (const bool has_query_rank : {true, false}) {
    const std::vector<double> want = expanded(text, has_query_rank);
    How setup{.threads = 2, .has_query_rank = has_query_rank};
    EXPECT_LT(relative_error(cut(text, setup, 150, 1, nullptr), want), 1e-6);
    for (const CpuLevel level : test::levels_to_test()) {
      if (!has_cpu_level(level)) continue;
      setup.kernels = cpu_kernels(level).value();
      EXPECT_LT(relative_error(cut(text, setup, 150, 1, nullptr), want), 1e-6)
          << cpu_level_name(level);
    }
  }
}

// The mean of many random values is small beside what rounding each of them does.
TEST(LatentAttention, EncodedRowsAreNear) {
  const std::vector<float> text = text_of(150, 11);
  const std::vector<double> want = expanded(text, true);
  How setup{.kernels = &best_kernels(), .threads = 2};
  if (setup.kernels->attention == nullptr) GTEST_SKIP() << "keeps float32 alone";
  for (const auto& [encoding, most] :
       {std::pair{KvEncoding::kFloat16, 1e-3}, std::pair{KvEncoding::kBfloat16, 8e-3},
        std::pair{KvEncoding::kFp8, 8e-2}}) {
    setup.encoding = encoding;
    const double error = relative_error(cut(text, setup, 150, 1, nullptr), want);
    RecordProperty(std::string(kv_encoding_name(encoding)), std::to_string(error));
    EXPECT_LT(error, most) << kv_encoding_name(encoding);
    EXPECT_GT(error, 1e-6) << kv_encoding_name(encoding);
  }
}

void expect_same_bits_in_any_cut(How setup) {
  constexpr std::size_t kTokens = 300;
  const std::vector<float> text = text_of(kTokens, 1);
  const std::vector<float> beside = text_of(kTokens, 2);
  const std::vector<float> whole = cut(text, setup, kTokens, 1, nullptr);
  setup.threads = 3;
  EXPECT_TRUE(same_bits(whole, cut(text, setup, kTokens, 1, nullptr)));
  EXPECT_TRUE(same_bits(whole, cut(text, setup, 1, 1, &beside)));
  EXPECT_TRUE(same_bits(whole, cut(text, setup, 127, 64, nullptr)));
  setup.threads = 8;
  EXPECT_TRUE(same_bits(whole, cut(text, setup, 77, 129, &beside)));
  EXPECT_TRUE(same_bits(whole, cut(text, setup, 290, 5, &beside)));
}

TEST(LatentAttention, BitsDoNotDependOnCutsThreadsOrNeighbours) {
  expect_same_bits_in_any_cut({});
  for (const KvEncoding encoding :
       {KvEncoding::kFloat32, KvEncoding::kBfloat16, KvEncoding::kFp8}) {
    if (best_kernels().attention == nullptr) continue;
    expect_same_bits_in_any_cut({.kernels = &best_kernels(), .encoding = encoding});
  }
}

// With values that are narrower than keys, and read from them.
TEST(LatentAttention, SimdKernelsHaveTheBitsOfTheirScalarTwin) {
  const std::vector<float> text = text_of(200, 3);
  for (const CpuLevel level : test::levels_to_test()) {
    if (!has_cpu_level(level) || cpu_kernels(level).value()->attention == nullptr) continue;
    Kernels twin = *cpu_kernels(level).value();
    twin.attention = &scalar_attention();
    for (const KvEncoding encoding :
         {KvEncoding::kFloat32, KvEncoding::kFloat16, KvEncoding::kFp8}) {
      How setup{.kernels = &twin, .encoding = encoding};
      const std::vector<float> want = cut(text, setup, 190, 1, nullptr);
      setup.kernels = cpu_kernels(level).value();
      EXPECT_TRUE(same_bits(cut(text, setup, 190, 1, nullptr), want)) << cpu_level_name(level);
    }
  }
}

TEST(LatentAttention, RemembersCompressedRowsAlone) {
  constexpr std::size_t kTokens = 140;
  const std::vector<float> text = text_of(kTokens + 1, 5);
  for (const auto& [kernels, encoding] : {std::pair{&reference_kernels(), KvEncoding::kFloat32},
                                          std::pair{&best_kernels(), KvEncoding::kFloat32},
                                          std::pair{&best_kernels(), KvEncoding::kFp8}}) {
    if (encoding != KvEncoding::kFloat32 && kernels->attention == nullptr) continue;
    Runner runner(
        {.kernels = kernels, .encoding = encoding, .tokens = kTokens, .context = kTokens + 1});
    LayerState state = runner.state();
    (void)runner.run({{&text, &state, 0, kTokens}});
    const std::uint64_t row = kKey * kv_value_bytes(encoding) + kv_scale_bytes(encoding);
    EXPECT_EQ(state.saved_bytes(kTokens), kTokens * row);
    EXPECT_LE(state.memory_bytes() + sizeof(LayerState),
              layer_state_bytes(layer().config, LayerSpec{.mixer = LatentAttentionSpec{}},
                                kTokens + 1, state_form(*kernels, encoding)));
    std::vector<std::byte> saved(state.saved_bytes(kTokens));
    state.save(kTokens, saved);
    LayerState loaded = runner.state();
    ASSERT_OK(loaded.load(kTokens, saved));
    ASSERT_OK_AND_ASSIGN(LayerState copied, state.copy(kTokens));
    const std::vector<float> next = runner.run({{&text, &state, kTokens, 1}});
    EXPECT_TRUE(same_bits(runner.run({{&text, &loaded, kTokens, 1}}), next));
    EXPECT_TRUE(same_bits(runner.run({{&text, &copied, kTokens, 1}}), next));
  }
}

}  // namespace
}  // namespace moepack::latent_attention_test
