// Kernels are asked what they know before a model is computed with them.
#include "runtime/model/kernel_support.h"

#include <gtest/gtest.h>

#include "runtime/vulkan/vulkan_support.h"
#include "tests/support/status_matchers.h"

namespace moepack::kernel_support_test {
namespace {

bool all_but_q4(const WeightFormat& format) { return format.id != QFormatId::kQ4; }

Kernels kernels_without_q4() {
  Kernels kernels = reference_kernels();
  kernels.name = "few";
  kernels.supports = all_but_q4;
  return kernels;
}

ModelDir model_of(QFormatId resident, QFormatId expert) {
  const auto format = [](QFormatId id) {
    const bool affine = qformat_info(id).kind == QKind::kAffine;
    return WeightFormat{.id = id, .group_size = affine ? 64U : 0U};
  };
  ModelDir model;
  model.path = "model";
  model.pack_path = "model/packed_experts";
  ResidentTensor tensor;
  tensor.name = "lm_head";
  tensor.format = format(resident);
  model.residents.tensors.push_back(tensor);
  ExpertLayout layout;
  for (ProjectionLayout& projection : layout.projections) projection.format = format(expert);
  model.pack.layouts.push_back(layout);
  return model;
}

TEST(KernelSupport, TakesWhatTheKernelsKnow) {
  const ModelDir model = model_of(QFormatId::kBf16, QFormatId::kQ3);
  EXPECT_TRUE(check_kernel_support(kernels_without_q4(), model).is_ok());
  EXPECT_TRUE(
      check_kernel_support(reference_kernels(), model_of(QFormatId::kQ4, QFormatId::kQ4)).is_ok());
}

TEST(KernelSupport, NamesTheMatrixTheFormatAndTheKernels) {
  const Status resident =
      check_kernel_support(kernels_without_q4(), model_of(QFormatId::kQ4, QFormatId::kQ3));
  EXPECT_EQ(resident.code(), StatusCode::kUnsupported);
  for (const char* part : {"model", "lm_head", "q4 g64", "few"}) {
    EXPECT_NE(resident.message().find(part), std::string::npos) << resident.message();
  }
  const Status expert =
      check_kernel_support(kernels_without_q4(), model_of(QFormatId::kBf16, QFormatId::kQ4));
  EXPECT_EQ(expert.code(), StatusCode::kUnsupported);
  EXPECT_NE(expert.message().find("packed_experts"), std::string::npos) << expert.message();
}

// Before anything is loaded, and without a device.
TEST(KernelSupport, WhatNoShaderComputesIsRefusedByName) {
  const auto refuses = [](const LayerSpec& layer, std::string_view part) {
    ModelDir model;
    model.config.head_dim = 64;
    model.config.layers = {LayerSpec{}, layer};
    test::expect_error(check_vulkan_support(model, KvEncoding::kFloat16), StatusCode::kUnsupported,
                       {"vulkan", part, "--backend cpu"});
  };
  refuses({.mixer = FullAttentionSpec{.has_gate = true, .has_bias = true}},
          "biases of queries with gates");
  refuses({.feed_forward = ExpertsSpec{.has_shared_expert = true, .has_biases = true}},
          "biases of experts beside a shared expert");
  refuses({.feed_forward = ExpertsSpec{.has_shared_expert = true,
                                       .activation = ExpertActivation::kClampedSwiGlu}},
          "this activation beside a shared expert");
  refuses({.mixer = FullAttentionSpec{.norm = QueryKeyNorm::kWholeWidth, .has_value_norm = true}},
          "norms of values beside norms of whole queries");
  refuses({.mixer = FullAttentionSpec{.has_bias = true, .values_are_keys = true}},
          "biases of values that are keys");
  refuses({.mixer = FullAttentionSpec{.has_output_bias = true}, .has_output_norms = true},
          "a bias of what attention gives before its norm");
  for (const std::uint32_t head_dim : {516U, 510U}) {
    const HeadSizes heads{.heads = 2, .kv_heads = 1, .head_dim = head_dim};
    refuses({.mixer = FullAttentionSpec{.own_heads = heads}},
            "attention heads of " + std::to_string(head_dim) + " values");
  }
  ModelDir latent;
  latent.config.head_dim = 64;
  latent.config.rotary_dim = 16;
  latent.config.layers = {{.mixer = LatentAttentionSpec{}}};
  for (const std::uint32_t rank : {30U, 2048U}) {
    latent.config.kv_rank = rank;
    test::expect_error(check_vulkan_support(latent, KvEncoding::kFloat16), StatusCode::kUnsupported,
                       {"vulkan", std::to_string(rank) + " + 16 values", "--backend cpu"});
  }
  latent.config.kv_rank = 512;
  latent.config.head_dim = 1024;  // of a query, which meets nothing as it is
  EXPECT_OK(check_vulkan_support(latent, KvEncoding::kFloat16));
}

}  // namespace
}  // namespace moepack::kernel_support_test
