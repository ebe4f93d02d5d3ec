// Sequences of a model with latent attention: each as if it were alone, to the last bit, in batches
// of several, cut, copied, taken back, saved and restored.
#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/model/sequence.h"
#include "tests/support/converted_model.h"
#include "tests/support/latent_model.h"
#include "tests/support/temp_dir.h"

namespace moepack::latent_sequence_test {
namespace {

constexpr std::size_t kTokens = 200;  // more than a block of keys and values

using Ids = std::vector<std::int32_t>;

Ids ids_of(std::size_t factor) {
  Ids ids(kTokens);
  for (std::size_t i = 0; i < kTokens; ++i) {
    ids[i] = static_cast<std::int32_t>((i * factor + 31) % 288);
  }
  return ids;
}

struct Way {
  Backend backend;
  ActivationType activations;
  KvEncoding encoding;
};

class LatentSequence : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    test::write_latent_model(dir_ / "checkpoint");
    ConvertOptions rounding;
    if (GetParam().activations == ActivationType::kInt8) {
      rounding.expert_format = QFormatId::kQ4;
      rounding.resident_format = QFormatId::kQ8;
      rounding.group_size = 32;
    }
    options_ = test::fast_options(test::convert_for_test(dir_ / "checkpoint", dir_, rounding));
    options_.backend = GetParam().backend;
    options_.activations = GetParam().activations;
    options_.kv_encoding = GetParam().encoding;
    options_.sequences = 3;
    options_.chunk_tokens = 48;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
    alone_ = whole(text_);
    other_alone_ = whole(other_);
  }

  std::vector<float> whole(const Ids& ids) {
    auto sequence = engine_->make_sequence();
    EXPECT_TRUE(sequence.is_ok());
    return run(sequence.value(), ids);
  }
  // Logits of the tokens that the sequence has not seen.
  std::vector<float> run(Sequence& sequence, const Ids& ids) {
    std::vector<float> rows;
    expect_ok({{&sequence, std::span(ids).subspan(sequence.position()), 0, sink(rows)}});
    return rows;
  }
  void expect_ok(std::vector<Slice> slices) {
    for (const Status& status : engine_->forward(slices)) {
      EXPECT_TRUE(status.is_ok()) << status.message();
    }
  }
  static LogitsSink sink(std::vector<float>& rows) {
    return [&rows](std::size_t, std::span<const float> row) {
      rows.insert(rows.end(), row.begin(), row.end());
      return Status::ok();
    };
  }
  static void expect_same(const std::vector<float>& got, const std::vector<float>& all) {
    ASSERT_LE(got.size(), all.size());
    const float* const from = all.data() + (all.size() - got.size());
    EXPECT_EQ(std::memcmp(got.data(), from, got.size() * sizeof(float)), 0);
  }

  test::TempDir dir_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  Ids text_ = ids_of(977);
  Ids other_ = ids_of(41);
  std::vector<float> alone_;
  std::vector<float> other_alone_;
};

TEST_P(LatentSequence, ManyInABatchAndTokenByToken) {
  ASSERT_OK_AND_ASSIGN(Sequence a, engine_->make_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence b, engine_->make_sequence());
  std::vector<float> of_a;
  std::vector<float> of_b;
  expect_ok({{&a, std::span(text_).first(130), 0, sink(of_a)}});
  expect_ok({{&b, std::span(other_).first(7), 0, sink(of_b)}});
  for (std::size_t t = 0; t < 70; ++t) {
    expect_ok({{&a, std::span(text_).subspan(130 + t, 1), 0, sink(of_a)},
               {&b, std::span(other_).subspan(7 + t, 1), 0, sink(of_b)}});
  }
  expect_ok({{&b, std::span(other_).subspan(77), 0, sink(of_b)}});
  expect_same(of_a, alone_);
  expect_same(of_b, other_alone_);
}

TEST_P(LatentSequence, TakenBackAndCopied) {
  ASSERT_OK_AND_ASSIGN(Sequence sequence, engine_->make_sequence());
  EXPECT_TRUE(sequence.can_truncate());
  expect_ok({{&sequence, std::span(text_).first(129), 0, nullptr}});
  ASSERT_OK_AND_ASSIGN(const StateSnapshot snapshot, sequence.snapshot());
  EXPECT_EQ(snapshot.size_bytes(), 0U);
  expect_ok({{&sequence, std::span(other_).first(20), 0, nullptr}});
  ASSERT_OK_AND_ASSIGN(Sequence copy, sequence.copy_at(snapshot));
  expect_same(run(copy, text_), alone_);
  ASSERT_OK(sequence.truncate(100));
  expect_same(run(sequence, text_), alone_);
  ASSERT_OK(sequence.rewind(snapshot));
  expect_same(run(sequence, text_), alone_);
}

TEST_P(LatentSequence, SavedAndRestored) {
  ASSERT_OK_AND_ASSIGN(Sequence sequence, engine_->make_sequence());
  expect_ok({{&sequence, std::span(text_).first(133), 0, nullptr}});
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes, sequence.save());
  const std::uint64_t row = 80 * kv_value_bytes(GetParam().encoding) +
                            kv_scale_bytes(GetParam().encoding);  // 64 and 16 values
  EXPECT_EQ(bytes.size(), 48 + 133 * 3 * row);
  ASSERT_OK_AND_ASSIGN(Sequence other, engine_->make_sequence());
  ASSERT_OK(other.restore(bytes));
  expect_same(run(other, text_), alone_);
}

TEST_P(LatentSequence, TakesNoMoreMemoryThanPlanned) {
  ASSERT_OK_AND_ASSIGN(Sequence sequence, engine_->make_sequence());
  expect_ok({{&sequence, text_, 0, nullptr}});
  const MemoryPlan& plan = engine_->memory_plan();
  EXPECT_EQ(plan.recurrent_bytes, 0U);
  EXPECT_LE(3 * sequence.memory_bytes(), plan.key_value_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, LatentSequence,
    ::testing::Values(Way{Backend::kReference, ActivationType::kFloat32, KvEncoding::kFloat32},
                      Way{Backend::kCpu, ActivationType::kFloat32, KvEncoding::kFloat16},
                      Way{Backend::kCpu, ActivationType::kInt8, KvEncoding::kBfloat16},
                      Way{Backend::kCpu, ActivationType::kInt8, KvEncoding::kFp8}),
    [](const ::testing::TestParamInfo<Way>& way) {
      return std::string(way.param.backend == Backend::kReference ? "reference_" : "cpu_") +
             std::string(kv_encoding_name(way.param.encoding));
    });

}  // namespace
}  // namespace moepack::latent_sequence_test
