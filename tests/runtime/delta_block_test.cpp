// GatedDeltaNet in blocks: every table of kernels against the rule token by token in double, on
// awkward shapes; and the promise that bits do not depend on how a sequence is cut.
#include "runtime/model/delta_block.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/model/delta_net_blocks.h"
#include "runtime/model/kernels.h"
#include "tests/support/cpu_levels.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/status_matchers.h"

namespace moepack::delta_block_test {
namespace {

using test::GuardedFloats;

constexpr double kUnit = 0x1p-24;  // half an ulp of 1: the relative error of one rounding
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kDims[] = {1, 3, 8, 16, 24, 40, 128, 200};

class DeltaBlock : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    const Result<const Kernels*> found = cpu_kernels(GetParam());
    if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
    kernels_ = found.value();
    ASSERT_NE(kernels_->delta_block, nullptr);
  }
  GuardedFloats random_floats(std::size_t count, float magnitude = 1.0F) {
    std::uniform_real_distribution<float> uniform(-magnitude, magnitude);
    GuardedFloats values(count);
    for (float& f : values.span()) f = uniform(random_);
    return values;
  }
  const DeltaBlockKernels& block() const { return *kernels_->delta_block; }

  const Kernels* kernels_ = nullptr;
  std::mt19937 random_{11};
};

// A sum of products in double, with the sum of their sizes, which bounds what roundings can do.
struct Sum {
  double value = 0;
  double size = 0;
  void add(double a, double b) {
    value += a * b;
    size += std::fabs(a * b);
  }
};

void expect_close(float got, const Sum& sum, std::size_t roundings, const char* what) {
  const double bound = static_cast<double>(roundings + 4) * kUnit * sum.size + 0x1p-140;
  ASSERT_NEAR(static_cast<double>(got), sum.value, bound) << what;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

TEST_P(DeltaBlock, Convolve) {
  constexpr std::size_t kStride = 210;
  for (const std::size_t width : kDims) {
    for (const std::size_t taps : {1U, 2U, 4U, 7U}) {
      GuardedFloats w = random_floats((taps - 1) * kStride + width);
      for (std::size_t kept_taps = 0; kept_taps < taps; ++kept_taps) {
        GuardedFloats kept = random_floats(kept_taps == 0 ? 0 : (kept_taps - 1) * kStride + width);
        GuardedFloats fresh = random_floats((taps - kept_taps - 1) * kStride + width);
        GuardedFloats out(width, kNan);
        block().convolve({.kept = kept.data(),
                          .kept_taps = kept_taps,
                          .fresh = fresh.data(),
                          .w = w.data(),
                          .stride = kStride,
                          .taps = taps,
                          .width = width,
                          .out = out.data()});
        for (std::size_t c = 0; c < width; ++c) {
          Sum sum;
          for (std::size_t j = 0; j < taps; ++j) {
            const float x =
                j < kept_taps ? kept[j * kStride + c] : fresh[(j - kept_taps) * kStride + c];
            sum.add(static_cast<double>(w[j * kStride + c]), static_cast<double>(x));
          }
          // The slope of silu is below 1.1.
          const double bound =
              (1.1 * static_cast<double>(taps) * sum.size + 8 * std::fabs(silu(sum.value))) * kUnit;
          ASSERT_NEAR(static_cast<double>(out[c]), silu(sum.value), bound) << width << " " << taps;
        }
      }
    }
  }
}

TEST_P(DeltaBlock, RowProducts) {
  for (const std::size_t n : kDims) {
    for (std::size_t rows = 1; rows <= kDeltaBlock; ++rows) {
      GuardedFloats keys = random_floats(rows * n);
      GuardedFloats k = random_floats(n);
      GuardedFloats q = random_floats(n);
      GuardedFloats of_k(kDeltaBlock, kNan);
      GuardedFloats of_q(kDeltaBlock, kNan);
      block().row_products(keys.data(), rows, k.data(), q.data(), n, of_k.data(), of_q.data());
      for (std::size_t j = 0; j < rows; ++j) {
        Sum with_k;
        Sum with_q;
        for (std::size_t i = 0; i < n; ++i) {
          with_k.add(static_cast<double>(keys[j * n + i]), static_cast<double>(k[i]));
          with_q.add(static_cast<double>(keys[j * n + i]), static_cast<double>(q[i]));
        }
        expect_close(of_k[j], with_k, n, "k");
        expect_close(of_q[j], with_q, n, "q");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(DeltaBlock, StateProducts) {
  for (const std::size_t dk : {1U, 5U, 128U}) {
    for (const std::size_t dv : kDims) {
      for (std::size_t tokens = 1; tokens <= kDeltaBlock; ++tokens) {
        const std::size_t stride = dv + 3;
        GuardedFloats state = random_floats(dk * dv);
        GuardedFloats k = random_floats(tokens * dk);
        GuardedFloats q = random_floats(tokens * dk);
        GuardedFloats of_k(tokens * dv, kNan);
        GuardedFloats of_q((tokens - 1) * stride + dv, kNan);
        block().state_products(
            {state.data(), dk, dv, tokens, k.data(), q.data(), of_k.data(), of_q.data(), stride});
        for (std::size_t at = 0; at < tokens * dv; ++at) {
          const std::size_t t = at / dv;
          const std::size_t c = at % dv;
          Sum with_k;
          Sum with_q;
          for (std::size_t i = 0; i < dk; ++i) {
            const auto s = static_cast<double>(state[i * dv + c]);
            with_k.add(s, static_cast<double>(k[t * dk + i]));
            with_q.add(s, static_cast<double>(q[t * dk + i]));
          }
          expect_close(of_k[at], with_k, dk, "k");
          expect_close(of_q[t * stride + c], with_q, dk, "q");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A token's products have the same bits alone as among others.
TEST_P(DeltaBlock, StateProductsDoNotSeeOtherTokens) {
  for (const std::size_t dv : {40U, 128U, 200U}) {
    constexpr std::size_t kKeys = 24;
    GuardedFloats state = random_floats(kKeys * dv);
    GuardedFloats k = random_floats(kDeltaBlock * kKeys);
    GuardedFloats q = random_floats(kDeltaBlock * kKeys);
    std::vector<float> of_k(kDeltaBlock * dv);
    std::vector<float> of_q(kDeltaBlock * dv);
    block().state_products(
        {state.data(), kKeys, dv, kDeltaBlock, k.data(), q.data(), of_k.data(), of_q.data(), dv});
    for (std::size_t tokens = 1; tokens < kDeltaBlock; ++tokens) {
      std::vector<float> k_again(tokens * dv);
      std::vector<float> q_again(tokens * dv);
      for (std::size_t t = 0; t + tokens <= kDeltaBlock; ++t) {
        block().state_products({state.data(), kKeys, dv, tokens, k.data() + t * kKeys,
                                q.data() + t * kKeys, k_again.data(), q_again.data(), dv});
        const std::size_t bytes = tokens * dv * sizeof(float);
        ASSERT_EQ(std::memcmp(k_again.data(), of_k.data() + t * dv, bytes), 0) << tokens;
        ASSERT_EQ(std::memcmp(q_again.data(), of_q.data() + t * dv, bytes), 0) << tokens;
      }
    }
  }
}

TEST_P(DeltaBlock, MixRow) {
  for (const std::size_t dv : kDims) {
    for (std::size_t row = 0; row < kDeltaBlock; ++row) {
      GuardedFloats values = random_floats((row + 1) * dv);
      const std::vector<float> before(values.span().begin(), values.span().end());
      GuardedFloats from_k = random_floats(row);
      GuardedFloats from_q = random_floats(row + 1);
      GuardedFloats of_k = random_floats(dv);
      GuardedFloats out = random_floats(dv);
      const std::vector<float> of_q(out.span().begin(), out.span().end());
      block().mix_row({values.data(), row, dv, 0.75F, 0.6F, from_k.data(), from_q.data(),
                       of_k.data(), out.data()});
      for (std::size_t c = 0; c < dv; ++c) {
        Sum seen;
        Sum wanted;
        seen.add(-0.75, static_cast<double>(of_k[c]));
        seen.add(1, static_cast<double>(before[row * dv + c]));
        wanted.add(0.75, static_cast<double>(of_q[c]));
        for (std::size_t j = 0; j < row; ++j) {
          const auto u = static_cast<double>(before[j * dv + c]);
          seen.add(-static_cast<double>(from_k[j]), u);
          wanted.add(static_cast<double>(from_q[j]), u);
        }
        const auto beta = static_cast<double>(0.6F);
        const Sum u{beta * seen.value, beta * seen.size};
        expect_close(values[row * dv + c], u, row + 2, "u");
        const auto factor = static_cast<double>(from_q[row]);
        wanted.add(factor, u.value);
        wanted.size += std::fabs(factor) * u.size;
        expect_close(out[c], wanted, row + 4, "out");
        if (HasFatalFailure()) return;
      }
      ASSERT_EQ(std::memcmp(values.data(), before.data(), row * dv * sizeof(float)), 0);
    }
  }
}

TEST_P(DeltaBlock, Advance) {
  for (const std::size_t dk : {1U, 7U, 8U, 20U, 128U}) {
    for (const std::size_t dv : kDims) {
      GuardedFloats state = random_floats(dk * dv);
      const std::vector<float> before(state.span().begin(), state.span().end());
      GuardedFloats k = random_floats(kDeltaBlock * dk);
      GuardedFloats u = random_floats(kDeltaBlock * dv);
      block().advance({state.data(), dk, dv, 0.4F, k.data(), u.data()});
      for (std::size_t at = 0; at < dk * dv; ++at) {
        Sum sum;
        sum.add(static_cast<double>(0.4F), static_cast<double>(before[at]));
        for (std::size_t j = 0; j < kDeltaBlock; ++j) {
          sum.add(static_cast<double>(k[j * dk + at / dv]),
                  static_cast<double>(u[j * dv + at % dv]));
        }
        expect_close(state[at], sum, kDeltaBlock, "state");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(DeltaBlock, ScaleAndGate) {
  for (const std::size_t n : kDims) {
    GuardedFloats x = random_floats(n);
    GuardedFloats factor = random_floats(n);
    GuardedFloats gates = random_floats(n, 20.0F);
    GuardedFloats out(n, kNan);
    block().gate(x.data(), 1.7F, factor.data(), gates.data(), n, out.data());
    for (std::size_t i = 0; i < n; ++i) {
      Sum sum;
      sum.add(
          static_cast<double>(x[i]) * static_cast<double>(1.7F) * static_cast<double>(factor[i]),
          silu(static_cast<double>(gates[i])));
      expect_close(out[i], sum, 8, "gate");
    }
    const std::vector<float> before(x.span().begin(), x.span().end());
    block().scale(0.3F, x.data(), n);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(x[i], 0.3F * before[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, DeltaBlock, testing::ValuesIn(test::levels_to_test()),
                         [](const testing::TestParamInfo<CpuLevel>& level) {
                           return std::string(cpu_level_name(level.param));
                         });

// ---- The mixer ----------------------------------------------------------------------------------

struct Shape {
  std::uint32_t key_heads, value_heads, key_dim, value_dim, taps;
  bool tiled;
};
constexpr Shape kShapes[] = {{2, 4, 24, 40, 4, false},
                             {2, 6, 5, 7, 2, true},
                             {1, 1, 1, 1, 1, false},
                             {4, 8, 32, 16, 6, true}};
constexpr std::size_t kTokens = 3 * kDeltaBlock + 5;

class Mixer {
 public:
  Mixer(const Shape& shape, const Kernels& kernels, std::size_t threads, Activations activations)
      : config_(config_of(shape)),
        activations_(std::move(activations)),
        compute_(kernels, threads, activations_.matmul_scratch),
        mixer_(config_, activations_) {
    std::mt19937 random(5);
    const auto fill = [&](std::vector<float>& to, std::size_t count, float mean, float deviation) {
      std::normal_distribution<float> normal(mean, deviation);
      to.resize(count);
      for (float& f : to) f = normal(random);
    };
    const std::size_t channels = conv_channels(config_);
    const std::size_t heads = shape.value_heads;
    fill(weights_.conv, shape.taps * channels, 0, 0.6F);
    fill(weights_.decay_rate, heads, -0.3F, 0.2F);
    for (float& f : weights_.decay_rate) f = -std::fabs(f);
    fill(weights_.dt_bias, heads, 0, 1);
    fill(weights_.norm, shape.value_dim, 1, 0.2F);
    weights_.tiled_v_heads = shape.tiled;
    fill(raw_, kTokens * channels, 0, 1);
    fill(z_, kTokens * heads * shape.value_dim, 0, 1);
    fill(b_, kTokens * heads, 0, 1);
    fill(a_, kTokens * heads, 0, 2);
  }
  static ModelConfig config_of(const Shape& shape) {
    ModelConfig config;
    config.hidden_size = 8;
    config.vocab_size = 1;
    config.rms_norm_eps = 1e-6F;
    config.linear_key_heads = shape.key_heads;
    config.linear_value_heads = shape.value_heads;
    config.linear_key_dim = shape.key_dim;
    config.linear_value_dim = shape.value_dim;
    config.linear_conv_taps = shape.taps;
    return config;
  }
  static Result<Activations> scratch_of(const Shape& shape, std::size_t threads) {
    return Activations::create(config_of(shape),
                               {.tokens = kTokens, .threads = threads, .context = 64});
  }
  Result<LayerState> make_state() const {
    return LayerState::create(config_, LayerSpec{.mixer = GatedDeltaNetSpec{}}, 64,
                              StateForm{.kv = {}, .delta = DeltaForm::kBlocks});
  }

  // Tokens [first, first + count) of the sequence; gives their outputs.
  std::vector<float> run(LayerState& state, std::size_t first, std::size_t count) {
    const std::size_t heads = config_.linear_value_heads;
    const std::size_t width = heads * config_.linear_value_dim;
    place(raw_, activations_.delta_raw, conv_channels(config_), first, count);
    place(z_, activations_.delta_z, width, first, count);
    place(b_, activations_.delta_b, heads, first, count);
    place(a_, activations_.delta_a, heads, first, count);
    Status status;
    const LayerSlice slice{&state, first, kOffset, count, &status};
    mixer_.mix(compute_, weights_, std::span(&slice, 1));
    const std::span<float> out = activations_.delta_mixed.subspan(kOffset * width, count * width);
    return {out.begin(), out.end()};
  }

  // The same in double, token by token.
  std::vector<double> exact() const;

 private:
  // A slice need not begin with the batch. Runs of all tokens have no room for that.
  static constexpr std::size_t kOffset = 0;
  static void place(const std::vector<float>& from, std::span<float> to, std::size_t width,
                    std::size_t first, std::size_t count) {
    std::copy_n(from.data() + first * width, count * width, to.data() + kOffset * width);
  }
  double convolved(std::size_t token, std::size_t channel) const;
  void step(std::size_t token, std::size_t head, std::vector<double>& s, double* out) const;

  ModelConfig config_;
  Activations activations_;
  Compute compute_;
  DeltaNetBlocks mixer_;
  DeltaNetWeights weights_;
  std::vector<float> raw_, z_, b_, a_;
};

double Mixer::convolved(std::size_t token, std::size_t channel) const {
  const std::size_t taps = config_.linear_conv_taps;
  const std::size_t channels = conv_channels(config_);
  double sum = 0;
  for (std::size_t j = 0; j < taps; ++j) {
    if (token + j + 1 < taps) continue;
    sum += static_cast<double>(weights_.conv[j * channels + channel]) *
           static_cast<double>(raw_[(token + j + 1 - taps) * channels + channel]);
  }
  return silu(sum);
}

void Mixer::step(std::size_t token, std::size_t head, std::vector<double>& s, double* out) const {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t key_heads = config_.linear_key_heads;
  const std::size_t heads = config_.linear_value_heads;
  const std::size_t key_head =
      weights_.tiled_v_heads ? head % key_heads : head / (heads / key_heads);
  std::vector<double> q(dk);
  std::vector<double> k(dk);
  double q_sum = 1e-6;
  double k_sum = 1e-6;
  for (std::size_t i = 0; i < dk; ++i) {
    q[i] = convolved(token, key_head * dk + i);
    k[i] = convolved(token, (key_heads + key_head) * dk + i);
    q_sum += q[i] * q[i];
    k_sum += k[i] * k[i];
  }
  for (std::size_t i = 0; i < dk; ++i) {
    q[i] /= std::sqrt(q_sum * static_cast<double>(dk));
    k[i] /= std::sqrt(k_sum);
  }
  const auto dt = static_cast<double>(a_[token * heads + head] + weights_.dt_bias[head]);
  const double decay =
      std::exp(static_cast<double>(weights_.decay_rate[head]) * std::log1p(std::exp(dt)));
  const double beta = 1 / (1 + std::exp(-static_cast<double>(b_[token * heads + head])));
  double squares = 0;
  for (std::size_t c = 0; c < dv; ++c) {
    double seen = 0;
    for (std::size_t i = 0; i < dk; ++i) seen += (s[i * dv + c] *= decay) * k[i];
    const double v = convolved(token, 2 * key_heads * dk + head * dv + c);
    out[c] = 0;
    for (std::size_t i = 0; i < dk; ++i) {
      s[i * dv + c] += k[i] * beta * (v - seen);
      out[c] += s[i * dv + c] * q[i];
    }
    squares += out[c] * out[c];
  }
  const double scale = 1 / std::sqrt(squares / static_cast<double>(dv) + 1e-6);
  for (std::size_t c = 0; c < dv; ++c) {
    out[c] *= scale * static_cast<double>(weights_.norm[c]) *
              silu(static_cast<double>(z_[(token * heads + head) * dv + c]));
  }
}

std::vector<double> Mixer::exact() const {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t heads = config_.linear_value_heads;
  std::vector<double> out(kTokens * heads * dv);
  for (std::size_t head = 0; head < heads; ++head) {
    std::vector<double> s(dk * dv);
    for (std::size_t t = 0; t < kTokens; ++t) step(t, head, s, &out[(t * heads + head) * dv]);
  }
  return out;
}

using MixerCase = std::tuple<CpuLevel, std::size_t>;  // level, shape

class DeltaMixer : public testing::TestWithParam<MixerCase> {
 protected:
  void SetUp() override {
    const Result<const Kernels*> found = cpu_kernels(std::get<0>(GetParam()));
    if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
    kernels_ = found.value();
    mixer_ = make(1);
    ASSERT_NE(mixer_, nullptr);
    ASSERT_OK_AND_ASSIGN(LayerState state, mixer_->make_state());
    whole_ = mixer_->run(state, 0, kTokens);
  }
  std::unique_ptr<Mixer> make(std::size_t threads) const {
    const Shape& shape = kShapes[std::get<1>(GetParam())];
    Result<Activations> scratch = Mixer::scratch_of(shape, threads);
    if (!scratch.is_ok()) return nullptr;
    return std::make_unique<Mixer>(shape, *kernels_, threads, std::move(scratch).value());
  }
  bool same_as_whole(const std::vector<float>& rows, std::size_t first) const {
    const std::size_t width = whole_.size() / kTokens;
    return std::memcmp(rows.data(), whole_.data() + first * width, rows.size() * sizeof(float)) ==
           0;
  }

  const Kernels* kernels_ = nullptr;
  std::unique_ptr<Mixer> mixer_;
  std::vector<float> whole_;  // all tokens at once
};

TEST_P(DeltaMixer, EqualsTheRuleTokenByToken) {
  const std::vector<double> exact = mixer_->exact();
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(static_cast<double>(whole_[i]) - exact[i], 2);
    size += exact[i] * exact[i];
  }
  EXPECT_LE(std::sqrt(error / size), 1e-6);
}

TEST_P(DeltaMixer, EveryCutHasTheSameBits) {
  for (std::size_t cut = 1; cut < kTokens; ++cut) {
    ASSERT_OK_AND_ASSIGN(LayerState state, mixer_->make_state());
    ASSERT_TRUE(same_as_whole(mixer_->run(state, 0, cut), 0)) << cut;
    ASSERT_TRUE(same_as_whole(mixer_->run(state, cut, kTokens - cut), cut)) << cut;
  }
  for (const std::size_t step : {1U, 2U, 3U, 7U, 17U}) {
    ASSERT_OK_AND_ASSIGN(LayerState state, mixer_->make_state());
    for (std::size_t t = 0; t < kTokens; t += step) {
      const std::size_t count = std::min(step, kTokens - t);
      ASSERT_TRUE(same_as_whole(mixer_->run(state, t, count), t)) << step << " at " << t;
    }
  }
}

TEST_P(DeltaMixer, ThreadsHaveTheSameBits) {
  const std::unique_ptr<Mixer> threads = make(3);
  ASSERT_OK_AND_ASSIGN(LayerState state, threads->make_state());
  EXPECT_TRUE(same_as_whole(threads->run(state, 0, kTokens), 0));
}

// Saved and copied behind every token, rows that nobody has seen being NaN where it is read.
TEST_P(DeltaMixer, SavedAndCopiedStatesGoOn) {
  for (std::size_t cut = 0; cut < 2 * kDeltaBlock + 2; ++cut) {
    ASSERT_OK_AND_ASSIGN(LayerState state, mixer_->make_state());
    if (cut > 0) (void)mixer_->run(state, 0, cut);
    std::vector<std::byte> bytes(state.saved_bytes(cut));
    state.save(cut, bytes);
    ASSERT_OK_AND_ASSIGN(LayerState restored, mixer_->make_state());
    for (const std::span<float> part :
         {std::span(restored.conv), std::span(restored.delta), std::span(restored.rows.keys),
          std::span(restored.rows.values), std::span(restored.rows.decays)}) {
      std::fill(part.begin(), part.end(), kNan);
    }
    ASSERT_OK(restored.load(cut, bytes));
    std::vector<std::byte> again(restored.saved_bytes(cut));
    restored.save(cut, again);
    EXPECT_EQ(again, bytes);
    ASSERT_OK_AND_ASSIGN(LayerState copy, restored.copy(cut));
    ASSERT_TRUE(same_as_whole(mixer_->run(restored, cut, kTokens - cut), cut)) << cut;
    ASSERT_TRUE(same_as_whole(mixer_->run(copy, cut, kTokens - cut), cut)) << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, DeltaMixer,
                         testing::Combine(testing::ValuesIn(test::levels_to_test()),
                                          testing::Range<std::size_t>(0, std::size(kShapes))),
                         [](const testing::TestParamInfo<MixerCase>& one) {
                           return std::string(cpu_level_name(std::get<0>(one.param))) + "_" +
                                  std::to_string(std::get<1>(one.param));
                         });

}  // namespace
}  // namespace moepack::delta_block_test
