// Device memory as arithmetic: what fits, what is refused, and that every part is counted.
#include "runtime/vulkan/vulkan_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/vulkan/device_experts.h"
#include "runtime/vulkan/device_scratch.h"
#include "runtime/vulkan/handed_scratch.h"
#include "runtime/vulkan/vulkan_support.h"
#include "tests/support/status_matchers.h"

namespace moepack::vulkan_plan_test {
namespace {

constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

ModelConfig small_config() {
  ModelConfig config;
  config.vocab_size = 1000;
  config.hidden_size = 256;
  config.num_layers = 3;
  config.layers.resize(3);
  config.layers[0].mixer = GatedDeltaNetSpec{};
  config.layers[1].mixer = GatedDeltaNetSpec{};
  config.num_experts = 16;
  config.experts_per_token = 4;
  config.expert_width = 128;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.linear_key_heads = 2;
  config.linear_value_heads = 4;
  config.linear_key_dim = 32;
  config.linear_value_dim = 32;
  config.linear_conv_taps = 4;
  return config;
}

PackManifest small_pack(const ModelConfig& config) {
  PackManifest pack;
  pack.num_layers = config.num_layers;
  pack.num_experts = config.num_experts;
  const WeightFormat bf16;
  pack.layouts.push_back(
      *make_expert_layout(config.hidden_size, config.expert_width, {bf16, bf16, bf16}));
  pack.layers.resize(config.num_layers);
  for (LayerEntry& layer : pack.layers) layer.experts.resize(config.num_experts);
  return pack;
}

VulkanRequest request_of(std::uint64_t free) {
  return {.context = 1024,
          .sequences = 2,
          .rows = 64,
          .kv_encoding = KvEncoding::kBfloat16,
          .resident_bytes = 4 << 20,
          .free_bytes = free};
}

TEST(VulkanPlan, CountsEveryPart) {
  const ModelConfig config = small_config();
  const PackManifest pack = small_pack(config);
  const auto plan = plan_vulkan(config, pack, request_of(8 * kGib));
  ASSERT_OK(plan);
  const VulkanPlan& p = plan.value();
  EXPECT_TRUE(p.holds_all_experts());
  // Keys and values of one layer: 2 sequences, 1024 positions, 2 heads of 64, 2 bytes.
  EXPECT_EQ(p.key_value_bytes, 2U * 2 * 1024 * 2 * 64 * 2);
  EXPECT_GE(p.resident_bytes, 4U << 20);
  EXPECT_GT(p.recurrent_bytes, 2U * 2 * 4 * 32 * 32 * 4);
  EXPECT_EQ(p.all_expert_bytes, DeviceExperts::slot_bytes(pack) * 3 * 16);
  EXPECT_EQ(p.expert_bytes, p.all_expert_bytes);
  EXPECT_EQ(p.total_bytes(), p.resident_bytes + p.key_value_bytes + p.recurrent_bytes +
                                 p.scratch_bytes + p.expert_bytes);
  VulkanRequest longer = request_of(8 * kGib);
  longer.context *= 2;
  EXPECT_EQ(plan_vulkan(config, pack, longer).value().key_value_bytes, 2 * p.key_value_bytes);
}

// Layers with heads of another size count their own.
TEST(VulkanPlan, CountsHeadsOfEveryLayer) {
  ModelConfig config = small_config();
  config.layers[1].mixer = FullAttentionSpec{};
  std::get<FullAttentionSpec>(config.layers[2].mixer).own_heads =
      HeadSizes{.heads = 4, .kv_heads = 1, .head_dim = 512};
  const auto plan = plan_vulkan(config, small_pack(config), request_of(8 * kGib));
  ASSERT_OK(plan);
  EXPECT_EQ(plan.value().key_value_bytes, 2U * 2 * 1024 * (2 * 64 + 512) * 2);
  const ScratchLimits limits{.rows = 16, .slices = 1, .shared_width = 0, .splits = 2};
  const DeviceScratch scratch = scratch_at(config, limits, 0);
  EXPECT_GE(scratch.values - scratch.keys, 16U * 512 * 4);
  EXPECT_GE(scratch.split_stats - scratch.split_values, 8U * 4 * 2 * 512 * 4);
}

TEST(VulkanPlan, ExpertsTakeWhatABudgetLeaves) {
  const ModelConfig config = small_config();
  const PackManifest pack = small_pack(config);
  const VulkanPlan whole = plan_vulkan(config, pack, request_of(8 * kGib)).value();
  VulkanRequest request = request_of(8 * kGib);
  request.budget = whole.fixed_bytes() + whole.expert_floor_bytes;
  const VulkanPlan least = plan_vulkan(config, pack, request).value();
  EXPECT_FALSE(least.holds_all_experts());
  EXPECT_EQ(least.expert_bytes, whole.expert_floor_bytes);
  EXPECT_LE(least.total_bytes(), request.budget);
  request.budget -= 1;
  test::expect_error(plan_vulkan(config, pack, request).status(), StatusCode::kInvalidArgument,
                     {"device memory", "residents", "keys and values", "--vram-mb", "-c"});
  request.budget = 8 * kGib;
  request.free_bytes = whole.fixed_bytes();
  EXPECT_FALSE(plan_vulkan(config, pack, request).is_ok()) << "a budget above what is free";
}

TEST(VulkanPlan, SizesThatNoKernelKnowsAreRefusedByName) {
  ModelDir model;
  model.config = small_config();
  EXPECT_OK(check_vulkan_support(model, KvEncoding::kBfloat16));
  test::expect_error(check_vulkan_support(model, KvEncoding::kFp8), StatusCode::kInvalidArgument,
                     {"fp8"});
  for (const std::uint32_t head_dim : {516U, 62U}) {
    model.config.head_dim = head_dim;
    test::expect_error(check_vulkan_support(model, KvEncoding::kBfloat16), StatusCode::kUnsupported,
                       {"heads of " + std::to_string(head_dim), "--backend cpu"});
  }
  model.config.head_dim = 64;
  FullAttentionSpec& wide = std::get<FullAttentionSpec>(model.config.layers[2].mixer);
  wide.own_heads = HeadSizes{.heads = 4, .kv_heads = 2, .head_dim = 1024};
  test::expect_error(check_vulkan_support(model, KvEncoding::kBfloat16), StatusCode::kUnsupported,
                     {"heads of 1024", "--backend cpu"});
  wide.own_heads->head_dim = 512;
  EXPECT_OK(check_vulkan_support(model, KvEncoding::kBfloat16));
  model.config.experts_per_token = 33;
  test::expect_error(check_vulkan_support(model, KvEncoding::kBfloat16), StatusCode::kUnsupported,
                     {"33 experts a token"});
}

TEST(VulkanPlan, ScratchPiecesLieApart) {
  const ModelConfig config = small_config();
  const ScratchLimits limits{.rows = 16, .slices = 1, .shared_width = 64, .splits = 2};
  const std::uint64_t bytes = scratch_bytes(config, limits);
  const DeviceScratch scratch = scratch_at(config, limits, 4096);
  EXPECT_EQ(scratch.hidden, 4096U);
  EXPECT_LT(scratch.logits, 4096 + bytes);
  EXPECT_NE(scratch.shared_activated, 0U) << "the shared expert has a width of its own";
  EXPECT_GE(scratch.normed, scratch.hidden + 16U * 256 * 4);
}

TEST(VulkanPlan, DevicesWithoutOrderedListsHaveNothingToHandOn) {
  const ModelConfig config = small_config();
  ScratchLimits limits{.rows = 16, .slices = 1, .shared_width = 64, .splits = 2};
  const std::uint64_t bytes = scratch_bytes(config, limits);
  limits.hands_on = false;
  EXPECT_EQ(scratch_bytes(config, limits), bytes - HandedScratch::bytes(config, kFewRows));
  EXPECT_EQ(scratch_at(config, limits, 4096).handed, 0U);
}

// A number that another stage wrote to the same place would be taken for one that is there.
TEST(VulkanPlan, WhatStagesHandOnHasMemoryOfItsOwn) {
  const ModelConfig config = small_config();
  const ScratchLimits limits{.rows = 16, .slices = 1, .shared_width = 64, .splits = 2};
  const DeviceScratch base = scratch_at(config, limits, 4096);
  const HandedScratch handed(config, base);
  for (const std::uint64_t rows : {1U, 3U, kFewRows}) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;  // address, floats
    pieces.emplace_back(handed.first_hidden(), rows * 256);
    for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
      const HandedLayer of_layer = handed.of_layer(layer, rows);
      const DeviceScratch& s = of_layer.scratch;
      EXPECT_EQ(s.choices, base.choices) << "this is no float";
      pieces.insert(pieces.end(), {{s.projected, rows * 512},
                                   {s.keys, rows * 128},
                                   {s.values, rows * 128},
                                   {s.delta_z, rows * 128},
                                   {s.delta_a, rows * 4},
                                   {s.delta_b, rows * 4},
                                   {s.mixed, rows * 256},
                                   {s.activated, rows * 5 * 128},
                                   {s.router_logits, kFewRows * 16},
                                   {s.shared_logits, kFewRows},
                                   {of_layer.behind_mixer, rows * 256}});
      for (const std::uint64_t hidden : of_layer.behind_kinds) {
        pieces.emplace_back(hidden, rows * 256);
      }
    }
    std::sort(pieces.begin(), pieces.end());
    const HandedScratch::Range cleared = handed.cleared(rows);
    EXPECT_EQ(pieces.front().first, base.handed) << "the first hidden state is not cleared";
    for (std::size_t i = 1; i < pieces.size(); ++i) {
      EXPECT_GE(pieces[i].first, pieces[i - 1].first + 4 * pieces[i - 1].second) << i;
      EXPECT_GE(pieces[i].first, cleared.address);
    }
    const std::uint64_t end = pieces.back().first + 4 * pieces.back().second;
    EXPECT_LE(end, cleared.address + cleared.bytes);
    EXPECT_LE(cleared.address + cleared.bytes, 4096 + scratch_bytes(config, limits));
  }
}

}  // namespace
}  // namespace moepack::vulkan_plan_test
