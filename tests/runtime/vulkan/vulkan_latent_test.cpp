// Models with latent attention on a GPU against the reference backend: generated ones of awkward
// sizes, published ones where they are at hand, several sequences, and what is saved of them.
#include <string>

#include "tests/runtime/vulkan/vulkan_model_fixture.h"
#include "tests/support/latent_model.h"
#include "tests/support/test_models.h"

namespace moepack::vulkan_latent_test {
namespace {

class VulkanLatent : public VulkanModel {
 protected:
  std::filesystem::path latent(const nlohmann::json& changes = nlohmann::json::object(),
                               const ConvertOptions& rounding = {}) {
    nlohmann::json config = test::latent_model_config();
    config.update(changes);
    const std::string name = std::to_string(++made_);
    test::write_latent_model(dir_ / ("checkpoint" + name), config);
    ConvertOptions options = rounding;
    options.source = dir_ / ("checkpoint" + name);
    options.output = dir_ / ("model" + name);
    options.threads = 2;
    const auto report = convert_checkpoint(options, {});
    EXPECT_TRUE(report.is_ok()) << report.status().message();
    return options.output;
  }

  // Logits of one forward pass of `sequence`.
  static std::vector<float> next(Engine& engine, Sequence& sequence,
                                 std::span<const std::int32_t> ids) {
    std::vector<float> rows;
    const LogitsSink sink = [&](std::size_t, std::span<const float> row) {
      rows.insert(rows.end(), row.begin(), row.end());
      return Status::ok();
    };
    const Slice slice{&sequence, ids, 0, sink};
    EXPECT_OK(engine.forward(std::span(&slice, 1)).front());
    return rows;
  }

 private:
  int made_ = 0;
};

TEST_F(VulkanLatent, CompressedQueries) {
  expect_like_reference(on_device(latent()), kUntrainedTolerance);
}

TEST_F(VulkanLatent, QueriesOfOneProjection) {
  expect_like_reference(on_device(latent({{"q_lora_rank", nullptr}})), kUntrainedTolerance);
}

// Tiles of queries that begin and end within tokens, ranks and heads of no power of two, pairs that
// lie half a head apart.
TEST_F(VulkanLatent, AwkwardSizes) {
  expect_like_reference(on_device(latent({{"num_attention_heads", 5},
                                          {"num_key_value_heads", 5},
                                          {"kv_lora_rank", 148},
                                          {"q_lora_rank", 44},
                                          {"qk_nope_head_dim", 28},
                                          {"qk_rope_head_dim", 12},
                                          {"v_head_dim", 36}})),
                        kUntrainedTolerance);
  expect_like_reference(on_device(latent({{"num_attention_heads", 37},
                                          {"num_key_value_heads", 37},
                                          {"kv_lora_rank", 12},
                                          {"qk_nope_head_dim", 4},
                                          {"v_head_dim", 8},
                                          {"rope_interleave", false}})),
                        kUntrainedTolerance);
}

TEST_F(VulkanLatent, StretchedRotationWithBothMagnitudes) {
  const nlohmann::json yarn = {{"type", "yarn"},
                               {"factor", 40},
                               {"beta_fast", 32},
                               {"beta_slow", 1},
                               {"mscale", 1.0},
                               {"mscale_all_dim", 0.7},
                               {"original_max_position_embeddings", 4096}};
  expect_like_reference(on_device(latent({{"rope_scaling", yarn}})), kUntrainedTolerance);
}

// The matrix that queries are absorbed by, in codes too.
TEST_F(VulkanLatent, Codes) {
  for (const auto& [experts, residents] :
       {std::pair{QFormatId::kQ4, QFormatId::kQ8}, {QFormatId::kQ8, QFormatId::kQ4}}) {
    ConvertOptions rounding;
    rounding.expert_format = experts;
    rounding.resident_format = residents;
    rounding.group_size = 32;
    const auto model = latent(nlohmann::json::object(), rounding);
    expect_like_reference(on_device(model), kUntrainedTolerance);
  }
}

TEST_F(VulkanLatent, RowsInSixteenBits) {
  for (const KvEncoding encoding : {KvEncoding::kBfloat16, KvEncoding::kFloat16}) {
    EngineOptions options = on_device(latent());
    options.kv_encoding = encoding;
    // What the reference keeps is not rounded.
    expect_like_reference(options, 1e-2);
  }
}

// More keys than a split has blocks, in tiles, few rows and single ones.
TEST_F(VulkanLatent, ManyKeys) {
  const auto model = latent();
  const auto ours = open(on_device(model));
  const auto theirs = open(test::reference_options(model));
  ASSERT_TRUE(ours != nullptr && theirs != nullptr);
  const Ids ids = random_ids(300, ours->config().vocab_size);
  const std::vector<float> expected = logits(*theirs, ids, {300});
  EXPECT_LT(test::relative_error(logits(*ours, ids, {270, 7, 6, 5, 4, 3, 2}), expected),
            kUntrainedTolerance);
  const std::vector<float> given = logits(*ours, ids, {130, 100, 70});
  EXPECT_LT(test::relative_error(given, expected), kUntrainedTolerance);
  EXPECT_EQ(logits(*ours, ids, {300}), given) << "a prompt's bits depend on its chunks";
}

TEST_F(VulkanLatent, PublishedModels) {
  for (const char* name :
       {"families/deepseek_v3", "encodings/deepseek_v3-fp8", "encodings/deepseek_v3-ct-int4"}) {
    SCOPED_TRACE(name);
    MOE_REQUIRE_MODEL(source, name);
    for (const bool is_decoded : {false, true}) {
      const test::TempDir dir;
      ConvertOptions rounding;
      if (is_decoded) rounding.expert_format = rounding.resident_format = QFormatId::kF32;
      expect_like_reference(on_device(test::convert_for_test(source, dir, rounding)));
    }
  }
}

TEST_F(VulkanLatent, MemoryChangesNoBit) {
  const EngineOptions options = on_device(latent());
  const auto resident = open(options);
  ASSERT_NE(resident, nullptr);
  const Ids ids = random_ids(30, resident->config().vocab_size);
  EngineOptions other = options;
  other.device_limits.force_staging = true;
  other.device_limits.most_allocation = 8 << 20;
  const VulkanPlan plan = resident->device_use()->plan;
  other.vram_bytes = plan.fixed_bytes() + plan.all_expert_bytes * 2 / 3;
  const auto streaming = open(other);
  ASSERT_NE(streaming, nullptr);
  EXPECT_FALSE(streaming->device_use()->plan.holds_all_experts());
  EXPECT_EQ(logits(*streaming, ids, {20}), logits(*resident, ids, {20}));
}

// Experts that have no room on the device are computed beside it.
TEST_F(VulkanLatent, ColdExpertsOnTheProcessor) {
  EngineOptions options = on_device(latent());
  const auto resident = open(options);
  ASSERT_NE(resident, nullptr);
  const VulkanPlan plan = resident->device_use()->plan;
  options.vram_bytes = plan.fixed_bytes() + plan.all_expert_bytes * 2 / 3;
  options.cold_experts = ColdExperts::kCpu;
  expect_like_reference(options, kUntrainedTolerance);
}

TEST_F(VulkanLatent, SequencesDoNotSeeEachOther) {
  EngineOptions options = on_device(latent());
  options.sequences = 3;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  for (const std::size_t count : {2U, 23U}) {  // each row by itself, and tiles
    std::vector<std::vector<float>> alone;
    std::vector<std::vector<float>> together(3);
    std::vector<Ids> ids;
    std::vector<Sequence> sequences;
    for (std::uint32_t s = 0; s < 3; ++s) {
      ids.push_back(random_ids(count + (count > 8 ? s : 0), 288, s + 1));
      ASSERT_OK_AND_ASSIGN(Sequence single, engine->make_sequence());
      alone.push_back(next(*engine, single, ids[s]));
    }
    for (std::uint32_t s = 0; s < 3; ++s) {
      ASSERT_OK_AND_ASSIGN(Sequence sequence, engine->make_sequence());
      sequences.push_back(std::move(sequence));
    }
    std::vector<Slice> slices;
    for (std::size_t s = 0; s < 3; ++s) {
      slices.push_back(
          {&sequences[s], ids[s], 0, [&to = together[s]](std::size_t, std::span<const float> row) {
             to.insert(to.end(), row.begin(), row.end());
             return Status::ok();
           }});
    }
    for (const Status& status : engine->forward(slices)) EXPECT_OK(status);
    for (std::size_t s = 0; s < 3; ++s) EXPECT_TRUE(together[s] == alone[s]) << count << " " << s;
  }
}

TEST_F(VulkanLatent, SequencesAreCopiedSavedTruncatedAndRestored) {
  const auto model = latent();
  for (const KvEncoding encoding : {KvEncoding::kFloat32, KvEncoding::kBfloat16}) {
    EngineOptions options = on_device(model);
    options.sequences = 4;
    options.kv_encoding = encoding;
    const auto engine = open(options);
    ASSERT_NE(engine, nullptr);
    const Ids ids = random_ids(61, 288);
    ASSERT_OK_AND_ASSIGN(Sequence first, engine->make_sequence());
    (void)next(*engine, first, std::span(ids).first(60));
    ASSERT_OK_AND_ASSIGN(Sequence copied, first.copy());
    ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> saved, first.save());
    EXPECT_EQ(saved.size(), 48 + 60 * 3 * 80 * kv_value_bytes(encoding));  // 64 and 16 values
    ASSERT_OK_AND_ASSIGN(Sequence restored, engine->make_sequence());
    EXPECT_OK(restored.restore(saved));
    ASSERT_OK_AND_ASSIGN(const StateSnapshot snapshot, restored.snapshot());
    EXPECT_EQ(snapshot.size_bytes(), 0U);
    ASSERT_OK_AND_ASSIGN(Sequence cut, first.copy());
    (void)next(*engine, cut, std::span(ids).first(9));
    ASSERT_TRUE(cut.can_truncate());
    EXPECT_OK(cut.truncate(60));
    const std::vector<float> expected = next(*engine, first, std::span(ids).last(1));
    for (Sequence* sequence : {&copied, &restored, &cut}) {
      EXPECT_EQ(next(*engine, *sequence, std::span(ids).last(1)), expected);
    }
    if (encoding != KvEncoding::kFloat32) continue;
    // The processor goes on with what the device saved.
    const auto reference = open(test::reference_options(model));
    ASSERT_NE(reference, nullptr);
    ASSERT_OK_AND_ASSIGN(Sequence taken, reference->make_sequence());
    ASSERT_OK(taken.restore(saved));
    EXPECT_LT(test::relative_error(next(*reference, taken, std::span(ids).last(1)), expected),
              kUntrainedTolerance);
  }
}

TEST_F(VulkanLatent, OneSubmissionAToken) {
  const auto engine = open(on_device(latent()));
  ASSERT_NE(engine, nullptr);
  const Ids ids = random_ids(12, 288);
  (void)logits(*engine, ids, {10});
  const DeviceWork before = engine->device_report()->work;
  engine->reset();
  (void)logits(*engine, ids, {10});
  EXPECT_EQ(engine->device_report()->work.submissions - before.submissions, 3U);
}

}  // namespace
}  // namespace moepack::vulkan_latent_test
