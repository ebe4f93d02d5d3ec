// A model over several devices gives the bits of one: two GPUs or one opened again and again, each
// with layers of its own, in every way of giving tokens; states that are copied, saved and restored
// across; and what several devices refuse.
#include <string>

#include "runtime/engine.h"
#include "tests/runtime/vulkan/vulkan_model_fixture.h"
#include "tests/support/family_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vulkan_devices.h"

namespace moepack::device_pipeline_test {
namespace {

class DevicePipelineTest : public VulkanModel {
 protected:
  static EngineOptions on_devices(const std::filesystem::path& model, std::size_t count) {
    EngineOptions options = on_device(model);
    options.devices = test::alike_devices(count);
    return options;
  }
  static EngineOptions on_one(const std::filesystem::path& model) {
    EngineOptions options = on_device(model);
    options.device = 0;
    return options;
  }

  // A prompt in tiles, a few rows at once and single tokens.
  static void expect_bits_of_one(const EngineOptions& several) {
    const auto parts = open(several);
    const auto whole = open(on_one(several.model));
    ASSERT_TRUE(parts != nullptr && whole != nullptr);
    const Ids ids = random_ids(48, whole->config().vocab_size);
    const std::vector<float> expected = logits(*whole, ids, {37, 5});
    EXPECT_EQ(logits(*parts, ids, {37, 5}), expected);
    EXPECT_EQ(logits(*parts, ids, {37, 5}), expected) << "a second run";
  }

  static LogitsSink collect(std::vector<float>& all) {
    return [&all](std::size_t, std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
      return Status::ok();
    };
  }
};

TEST_F(DevicePipelineTest, TwoAndThreeDevicesGiveTheBitsOfOne) {
  const auto model = tiny();
  expect_bits_of_one(on_devices(model, 2));
  expect_bits_of_one(on_devices(model, 3));
  EngineOptions uneven = on_devices(model, 2);
  uneven.tensor_split = {1, 3};
  expect_bits_of_one(uneven);
}

// A dense first layer, windows and sinks, compressed keys: what a layer is goes with it.
TEST_F(DevicePipelineTest, LayersOfOtherKinds) {
  for (const char* name : {"glm4_moe", "gpt_oss", "kimi_k2"}) {
    SCOPED_TRACE(name);
    const test::TempDir own;
    test::write_family_model(own / "checkpoint", test::family_config(name));
    expect_bits_of_one(on_devices(test::convert_for_test(own / "checkpoint", own), 2));
  }
}

// A device whose layers have no experts at all.
TEST_F(DevicePipelineTest, DenseLayersAlone) {
  const test::TempDir own;
  test::write_family_model(own / "checkpoint", test::family_config("glm4_moe"));
  EngineOptions options = on_devices(test::convert_for_test(own / "checkpoint", own), 2);
  options.tensor_split = {1, 99};
  expect_bits_of_one(options);
  options.cold_experts = ColdExperts::kCpu;
  options.vram_bytes = 0;
  expect_bits_of_one(options);
}

TEST_F(DevicePipelineTest, OneSubmissionADeviceAndBatch) {
  const auto engine = open(on_devices(tiny(), 2));
  ASSERT_NE(engine, nullptr);
  const Ids ids = random_ids(3, engine->config().vocab_size);
  (void)logits(*engine, ids, {1});
  const std::uint64_t before = engine->device_report()->work.submissions;
  std::vector<float> all;
  EXPECT_OK(engine->forward(std::span(ids).first(1), 0, collect(all)));
  EXPECT_EQ(engine->device_report()->work.submissions, before + 2);
}

TEST_F(DevicePipelineTest, SeveralSequencesAtOnce) {
  EngineOptions options = on_devices(tiny(), 2);
  options.sequences = 3;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  std::vector<Ids> ids;
  std::vector<std::vector<float>> alone(3);
  std::vector<std::vector<float>> together(3);
  std::vector<Sequence> sequences;
  for (std::uint32_t s = 0; s < 3; ++s) {
    ids.push_back(random_ids(2, engine->config().vocab_size, s + 1));
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine->make_sequence());
    const Slice slice{&sequence, ids[s], 0, collect(alone[s])};
    EXPECT_OK(engine->forward(std::span(&slice, 1)).front());
  }
  std::vector<Slice> slices;
  for (std::uint32_t s = 0; s < 3; ++s) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine->make_sequence());
    sequences.push_back(std::move(sequence));
  }
  for (std::uint32_t s = 0; s < 3; ++s) {
    slices.push_back({&sequences[s], ids[s], 0, collect(together[s])});
  }
  for (const Status& status : engine->forward(slices)) EXPECT_OK(status);
  EXPECT_EQ(together, alone);
}

// What is saved is what one device saves, and either goes on with the other's.
TEST_F(DevicePipelineTest, StatesAreCopiedSavedAndRestored) {
  const auto model = tiny();
  EngineOptions several = on_devices(model, 2);
  EngineOptions single = on_one(model);
  for (EngineOptions* options : {&several, &single}) {
    options->sequences = 3;
    options->saves_sequence = true;
  }
  const auto parts = open(several);
  const auto whole = open(single);
  ASSERT_TRUE(parts != nullptr && whole != nullptr);
  const Ids ids = random_ids(21, whole->config().vocab_size);
  std::vector<float> none;
  ASSERT_OK_AND_ASSIGN(Sequence first, parts->make_sequence());
  const Slice begin{&first, std::span(ids).first(20), 20, collect(none)};
  EXPECT_OK(parts->forward(std::span(&begin, 1)).front());
  ASSERT_OK_AND_ASSIGN(Sequence copied, first.copy());
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> saved, first.save());
  ASSERT_OK_AND_ASSIGN(Sequence taken, whole->make_sequence());
  ASSERT_OK(taken.restore(saved));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> again, taken.save());
  EXPECT_EQ(again, saved);
  ASSERT_OK_AND_ASSIGN(Sequence back, parts->make_sequence());
  ASSERT_OK(back.restore(again));
  std::vector<std::vector<float>> last(3);
  const Slice on_copy{&copied, std::span(ids).last(1), 0, collect(last[0])};
  EXPECT_OK(parts->forward(std::span(&on_copy, 1)).front());
  const Slice on_whole{&taken, std::span(ids).last(1), 0, collect(last[1])};
  EXPECT_OK(whole->forward(std::span(&on_whole, 1)).front());
  const Slice on_back{&back, std::span(ids).last(1), 0, collect(last[2])};
  EXPECT_OK(parts->forward(std::span(&on_back, 1)).front());
  EXPECT_EQ(last[0], last[1]);
  EXPECT_EQ(last[2], last[1]);
}

// Each device has experts of its own: fetched, or joined with the processor's.
TEST_F(DevicePipelineTest, ExpertsBeyondTheDevicesMemory) {
  const auto model = tiny();
  const auto whole = open(on_devices(model, 2));
  ASSERT_NE(whole, nullptr);
  const VulkanPlan& plan = whole->device_use()->plan;
  for (const ColdExperts way : {ColdExperts::kFetch, ColdExperts::kCpu}) {
    EngineOptions options = on_devices(model, 2);
    options.cold_experts = way;
    options.vram_bytes = (plan.fixed_bytes() + plan.all_expert_bytes) * 6 / 10;
    options.tensor_split = {1, 1};
    expect_like_reference(options, kUntrainedTolerance);
  }
}

TEST_F(DevicePipelineTest, WhatIsRefused) {
  const auto model = tiny();
  EngineOptions many = on_devices(model, 9);
  const auto too_many = Engine::open(many);
  ASSERT_FALSE(too_many.is_ok());
  EXPECT_NE(too_many.status().message().find("9 devices"), std::string::npos);
  EngineOptions split = on_devices(model, 2);
  split.tensor_split = {1, 2, 3};
  EXPECT_FALSE(Engine::open(split).is_ok());
  EngineOptions small = on_devices(model, 2);
  small.vram_bytes = 1;
  const auto short_of = Engine::open(small);
  ASSERT_FALSE(short_of.is_ok());
  EXPECT_NE(short_of.status().message().find("layers 0 to"), std::string::npos);
}

}  // namespace
}  // namespace moepack::device_pipeline_test
