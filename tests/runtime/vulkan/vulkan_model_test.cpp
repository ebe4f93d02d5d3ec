// Whole models on a GPU against the reference backend: both paths, every way in which device memory
// can be short, several sequences at once, saved sequences, and what is refused. On a machine
// without a GPU a processor that plays one (lavapipe) serves; without that the tests are skipped.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "formats/base/file.h"
#include "runtime/vulkan/pipeline_file.h"
#include "tests/runtime/vulkan/vulkan_model_fixture.h"
#include "tests/support/test_models.h"

namespace moepack::vulkan_model_test {
namespace {

TEST_F(VulkanModel, Bfloat16) { expect_like_reference(on_device(tiny()), kUntrainedTolerance); }

TEST_F(VulkanModel, AffineCodes) {
  expect_like_reference(
      on_device(tiny({.layout = test::TinyLayout::kMlx, .bits = 2, .group_size = 32})),
      kUntrainedTolerance);
}

TEST_F(VulkanModel, Demo) {
  expect_like_reference(on_device(test::convert_for_test(test::demo_mlx_model(), dir_)));
}

// Decoding with inputs as two bytes each; a value is off by 2^-15 of its group's largest.
TEST_F(VulkanModel, InputsInFixedPoint) {
  EngineOptions options = on_device(test::convert_for_test(test::demo_mlx_model(), dir_));
  options.activations = ActivationType::kInt8;
  options.device_limits.wants_fixed_products = true;
  expect_like_reference(options, 1e-3);
}

TEST_F(VulkanModel, InputsOfOneByteAndTwoAreOneHere) {
  EngineOptions options = on_device(test::convert_for_test(test::demo_mlx_model(), dir_));
  options.device_limits.wants_fixed_products = true;
  std::vector<std::vector<float>> all;
  for (const ActivationType activations :
       {ActivationType::kInt8, ActivationType::kInt16, ActivationType::kFloat32}) {
    options.activations = activations;
    const auto engine = open(options);
    ASSERT_NE(engine, nullptr);
    all.push_back(logits(*engine, random_ids(9, engine->config().vocab_size), {4, 5}));
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_NE(all[1], all[2]) << "floats";
}

TEST_F(VulkanModel, Q4KAndQ6K) {
  MOE_REQUIRE_MODEL(model, "small-moe-Q4_K_M.gguf");
  expect_like_reference(on_device(test::convert_for_test(model, dir_)));
}

TEST_F(VulkanModel, Q3Blocks) {
  MOE_REQUIRE_MODEL(model, "small-moe-Q3-gguf/small-moe-Q3-00001-of-00003.gguf");
  expect_like_reference(on_device(test::convert_for_test(model, dir_)));
}

TEST_F(VulkanModel, Olmoe) {
  MOE_REQUIRE_MODEL(model, "families/olmoe");
  expect_like_reference(on_device(test::convert_for_test(model, dir_)));
}

TEST_F(VulkanModel, Qwen3Moe) {
  MOE_REQUIRE_MODEL(model, "families/qwen3_moe");
  expect_like_reference(on_device(test::convert_for_test(model, dir_)));
}

// No norms of queries and keys; dense layers, sigmoids that are corrected, a shared expert without
// a gate; norms over the whole width; sinks, windows, biases and the limited activation.
TEST_F(VulkanModel, OtherFamilies) {
  for (const char* family : {"mixtral", "glm4_moe", "minimax_m2", "gpt_oss"}) {
    SCOPED_TRACE(family);
    MOE_REQUIRE_MODEL(model, std::string("families/") + family);
    const test::TempDir dir;
    EngineOptions options = on_device(test::convert_for_test(model, dir));
    expect_like_reference(options);
    // With too little memory for all experts.
    const auto resident = open(options);
    ASSERT_NE(resident, nullptr);
    const VulkanPlan plan = resident->device_use()->plan;
    options.vram_bytes = plan.fixed_bytes() + plan.all_expert_bytes * 2 / 3;
    expect_like_reference(options);
  }
}

// Staging, small allocations and too little memory for all experts change where bytes lie, not one
// bit of the results.
TEST_F(VulkanModel, MemoryChangesNoBit) {
  const EngineOptions options = on_device(tiny());
  const auto resident = open(options);
  ASSERT_NE(resident, nullptr);
  const Ids ids = random_ids(30, resident->config().vocab_size);
  const std::vector<float> expected = logits(*resident, ids, {20, 4});
  EXPECT_EQ(logits(*resident, ids, {20, 4}), expected) << "a second run";

  EngineOptions other = options;
  other.device_limits.force_staging = true;
  other.device_limits.most_allocation = 8 << 20;
  const auto staged = open(other);
  ASSERT_NE(staged, nullptr);
  EXPECT_EQ(logits(*staged, ids, {20, 4}), expected);

  other = options;
  const VulkanPlan plan = resident->device_use()->plan;
  ASSERT_TRUE(plan.holds_all_experts());
  other.vram_bytes = plan.fixed_bytes() + plan.all_expert_bytes / 3;
  const auto streaming = open(other);
  ASSERT_NE(streaming, nullptr);
  EXPECT_FALSE(streaming->device_use()->plan.holds_all_experts());
  // With this little room even four rows take the path of many.
  EXPECT_EQ(logits(*streaming, ids, {20}), logits(*resident, ids, {20}));
}

// Stages that wait by counters, in floats and in fixed point.
TEST_F(VulkanModel, CountersInPlaceOfBarriersChangeNoBit) {
  EngineOptions options = on_device(test::convert_for_test(test::demo_mlx_model(), dir_));
  options.device_limits.wants_fixed_products = true;
  for (const ActivationType activations : {ActivationType::kFloat32, ActivationType::kInt16}) {
    options.activations = activations;
    const OrderedRun barriers = run_ordered(options, StageOrdering::kBarriers);
    const OrderedRun counters = run_ordered(options, StageOrdering::kCounters);
    EXPECT_EQ(barriers.logits, counters.logits);
    // In floats most programs have no ordered form.
    const std::uint64_t less = activations == ActivationType::kInt16 ? 4 : 1;
    EXPECT_LE(counters.barriers * less, barriers.barriers);
  }
}

// Several formats of experts in a layer, one stage each: the shared expert's is another here.
TEST_F(VulkanModel, CountersChangeNoBitWhereExpertsAreOfSeveralFormats) {
  MOE_REQUIRE_MODEL(model, "small-moe-Q4_K_M.gguf");
  EngineOptions options = on_device(test::convert_for_test(model, dir_));
  options.activations = ActivationType::kInt16;
  options.device_limits.wants_fixed_products = true;
  EXPECT_EQ(run_ordered(options, StageOrdering::kBarriers).logits,
            run_ordered(options, StageOrdering::kCounters).logits);
}

TEST_F(VulkanModel, OneSubmissionATokenAndNothingElsewhere) {
  const auto engine = open(on_device(tiny()));
  ASSERT_NE(engine, nullptr);
  const Ids ids = random_ids(12, engine->config().vocab_size);
  (void)logits(*engine, ids, {10});
  const DeviceWork before = engine->device_report()->work;
  engine->reset();
  (void)logits(*engine, ids, {10});
  const DeviceWork after = engine->device_report()->work;
  EXPECT_EQ(after.batches - before.batches, 3U);
  EXPECT_EQ(after.submissions - before.submissions, 3U);
}

TEST_F(VulkanModel, NeighboursChangeNoBit) {
  EngineOptions options = on_device(tiny());
  options.sequences = 3;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  std::vector<std::vector<float>> alone(3);
  std::vector<std::vector<float>> together(3);
  std::vector<Ids> ids;
  for (std::uint32_t s = 0; s < 3; ++s) {
    ids.push_back(random_ids(2, engine->config().vocab_size, s + 1));
  }
  const auto sink_of = [](std::vector<float>& to) {
    return [&to](std::size_t, std::span<const float> row) {
      to.insert(to.end(), row.begin(), row.end());
      return Status::ok();
    };
  };
  for (std::size_t s = 0; s < 3; ++s) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine->make_sequence());
    const Slice slice{&sequence, ids[s], 0, sink_of(alone[s])};
    EXPECT_OK(engine->forward(std::span(&slice, 1)).front());
  }
  std::vector<Sequence> sequences;
  for (std::size_t s = 0; s < 3; ++s) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine->make_sequence());
    sequences.push_back(std::move(sequence));
  }
  std::vector<Slice> slices;
  for (std::size_t s = 0; s < 3; ++s) {
    slices.push_back({&sequences[s], ids[s], 0, sink_of(together[s])});
  }
  for (const Status& status : engine->forward(slices)) EXPECT_OK(status);
  EXPECT_EQ(together, alone);
}

// The device's own highest logits are those of the logits that it hands out, and the processor's
// way to them too; among the first ids where not all are allowed.
TEST_F(VulkanModel, HighestLogitsAreThoseOfAllLogits) {
  EngineOptions options = on_device(tiny());
  for (const bool is_staged : {false, true}) {
    options.device_limits.force_staging = is_staged;
    for (const EngineOptions& chosen : {options, test::reference_options(options.model)}) {
      const auto engine = open(chosen);
      ASSERT_NE(engine, nullptr);
      const std::uint32_t vocab = engine->config().vocab_size;
      const Ids ids = random_ids(24, vocab);
      const std::vector<float> all = logits(*engine, ids, {12, 5});
      for (const std::uint32_t limit : {vocab, vocab / 3}) {
        Ids expected;
        for (std::size_t i = 0; i < ids.size(); ++i) {
          const auto row = all.begin() + static_cast<std::ptrdiff_t>(i * vocab);
          expected.push_back(static_cast<std::int32_t>(std::max_element(row, row + limit) - row));
        }
        Ids found;
        const TopSink sink = [&](std::size_t, std::int32_t id) {
          found.push_back(id);
          return Status::ok();
        };
        engine->reset();
        std::span<const std::int32_t> rest(ids);
        for (const std::size_t count : {12U, 5U, 1U, 1U, 5U}) {
          EXPECT_OK(engine->forward_top(rest.first(count), 0, limit, sink));
          rest = rest.subspan(count);
        }
        EXPECT_EQ(found, expected) << limit;
      }
    }
  }
}

TEST_F(VulkanModel, SequencesAreCopiedSavedAndRestored) {
  EngineOptions options = on_device(tiny());
  options.sequences = 3;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const Ids ids = random_ids(21, engine->config().vocab_size);
  std::vector<float> rows;
  const LogitsSink sink = [&](std::size_t, std::span<const float> row) {
    rows.insert(rows.end(), row.begin(), row.end());
    return Status::ok();
  };
  ASSERT_OK_AND_ASSIGN(Sequence first, engine->make_sequence());
  const Slice begin{&first, std::span(ids).first(20), 20, sink};
  EXPECT_OK(engine->forward(std::span(&begin, 1)).front());
  ASSERT_OK_AND_ASSIGN(Sequence copied, first.copy());
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> saved, first.save());
  ASSERT_OK_AND_ASSIGN(Sequence restored, engine->make_sequence());
  EXPECT_OK(restored.restore(saved));
  ASSERT_OK_AND_ASSIGN(const StateSnapshot snapshot, restored.snapshot());
  EXPECT_GT(snapshot.size_bytes(), 0U);
  const Slice detour{&restored, std::span(ids).first(9), 9, sink};
  EXPECT_OK(engine->forward(std::span(&detour, 1)).front());
  EXPECT_OK(restored.rewind(snapshot));
  std::vector<std::vector<float>> next;
  for (Sequence* sequence : {&first, &copied, &restored}) {
    rows.clear();
    const Slice last{sequence, std::span(ids).last(1), 0, sink};
    EXPECT_OK(engine->forward(std::span(&last, 1)).front());
    next.push_back(rows);
  }
  EXPECT_EQ(next[1], next[0]);
  EXPECT_EQ(next[2], next[0]);
}

// A file of compiled kernels is written, read again, and left out when it is damaged.
TEST_F(VulkanModel, CompiledKernelsAreKept) {
  EngineOptions options = on_device(tiny());
  options.pipeline_file = dir_ / "caches" / "pipelines.bin";
  const Ids ids = random_ids(3, 200);
  std::vector<float> expected;
  for (int run = 0; run < 3; ++run) {
    {
      const auto engine = open(options);
      ASSERT_NE(engine, nullptr);
      const std::vector<float> given = logits(*engine, ids, {3});
      if (run == 0) expected = given;
      EXPECT_EQ(given, expected);
    }
    ASSERT_TRUE(std::filesystem::exists(options.pipeline_file));
    const auto size = std::filesystem::file_size(options.pipeline_file);
    EXPECT_GE(size, 48U);  // our head and Vulkan's
    const auto text = read_text_file(options.pipeline_file, 1 << 26);
    ASSERT_OK(text);
    const auto bytes = std::as_bytes(std::span<const char>(text.value()));
    EXPECT_EQ(pipelines_of(bytes).size(), bytes.size() - 16);
    for (std::size_t cut = 0; cut < bytes.size(); cut += 1 + bytes.size() / 97) {
      EXPECT_TRUE(pipelines_of(bytes.first(cut)).empty()) << cut;
    }
    if (run == 1) std::filesystem::resize_file(options.pipeline_file, size / 2);
  }
}

TEST_F(VulkanModel, RefusesWhatItCannotDo) {
  EngineOptions options = on_device(tiny());
  options.kv_encoding = KvEncoding::kFp8;
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument,
                     {"fp8", "--kv-cache-type"});
  options.kv_encoding = KvEncoding::kFloat32;
  options.vram_bytes = 1 << 20;
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument,
                     {"device memory", "--vram-mb"});
  options.vram_bytes = 0;
  options.device = 99;
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument, {"99"});
}

TEST_F(VulkanModel, ValidationLayersHaveNothingToSay) {
  std::vector<std::string> messages;
  EngineOptions options = on_device(tiny());
  options.device_limits.validation = [&](const std::string& text) { messages.push_back(text); };
  options.device_limits.force_staging = true;
  options.gpu_order = StageOrdering::kCounters;
  const auto opened = Engine::open(options);
  if (!opened.is_ok()) GTEST_SKIP() << "SKIPPED: " << opened.status().message();
  const Ids ids = random_ids(14, opened.value()->config().vocab_size);
  (void)logits(*opened.value(), ids, {12});
  EXPECT_TRUE(messages.empty()) << messages.size() << " messages, first: " << messages.front();
}

}  // namespace
}  // namespace moepack::vulkan_model_test
