// Models of the small floats that checkpoints hold and no block of ggml does, on a GPU against the
// reference backend: codes as they are, with scales of their own.
#include <set>
#include <string>

#include "formats/model_dir.h"
#include "tests/runtime/vulkan/vulkan_model_fixture.h"
#include "tests/support/attention_model.h"
#include "tests/support/test_models.h"

namespace moepack::vulkan_encodings_test {
namespace {

class VulkanEncodings : public VulkanModel {
 protected:
  // Converts, and gives the formats of its experts.
  static std::set<QFormatId> expert_formats(const std::filesystem::path& model) {
    std::set<QFormatId> formats;
    const auto opened = open_model_dir(model, "");
    EXPECT_TRUE(opened.is_ok()) << opened.status().message();
    if (!opened.is_ok()) return formats;
    for (const ExpertLayout& layout : opened.value().pack.layouts) {
      for (const ProjectionLayout& projection : layout.projections) {
        formats.insert(projection.format.id);
      }
    }
    return formats;
  }
};

TEST_F(VulkanEncodings, FloatsOfEightBits) {
  test::write_fp8_attention_model(dir_ / "checkpoint");
  const auto model = test::convert_for_test(dir_ / "checkpoint", dir_);
  ASSERT_EQ(expert_formats(model), std::set{QFormatId::kF8E4M3});
  expect_like_reference(on_device(model), kUntrainedTolerance);
}

TEST_F(VulkanEncodings, PublishedModels) {
  const std::pair<const char*, QFormatId> models[] = {
      {"qwen3_moe-mlx-mxfp8", QFormatId::kMxfp8},
      {"qwen3_moe-ct-nvfp4", QFormatId::kNvfp4Scaled},
      {"qwen3_moe-modelopt-nvfp4", QFormatId::kNvfp4Scaled},
      {"qwen3_moe-mlx-nvfp4-gs", QFormatId::kNvfp4Scaled},
      {"qwen3_moe-fp8", QFormatId::kBf16},  // no whole blocks
      {"minimax_m2-fp8", QFormatId::kBf16},
      {"glm4_moe-ct-fp8", QFormatId::kBf16},
  };
  for (const auto& [name, format] : models) {
    SCOPED_TRACE(name);
    MOE_REQUIRE_MODEL(source, std::string("encodings/") + name);
    const test::TempDir dir;
    const auto model = test::convert_for_test(source, dir);
    EXPECT_TRUE(expert_formats(model).contains(format));
    expect_like_reference(on_device(model));
  }
}

}  // namespace
}  // namespace moepack::vulkan_encodings_test
