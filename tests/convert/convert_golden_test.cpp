// Conversions of checkpoints that other programs wrote.
#include <gtest/gtest.h>

#include "convert/pack/convert.h"
#include "formats/pack/pack_manifest.h"
#include "tests/convert/model_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace moepack::convert_golden_test {
namespace {

using test::TempDir;

ConvertReport convert(const std::filesystem::path& source, const std::filesystem::path& output,
                      ConvertOptions options = {}) {
  options.source = source;
  options.output = output;
  options.threads = 2;
  const auto report = convert_checkpoint(options, {});
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  return report.is_ok() ? report.value() : ConvertReport{};
}

std::string file_bytes(const std::filesystem::path& model, const std::string& name) {
  return test::read_file(model / name);
}

// The MLX form of the demo model was rounded by another program after MLX's rule.
TEST(ConvertGolden, DemoRoundedToFourBitsIsTheMlxCheckpoint) {
  MOE_REQUIRE_MODEL(source, "demo-moe");
  const TempDir dir;
  ConvertOptions options;
  options.expert_format = QFormatId::kQ4;
  options.resident_format = QFormatId::kQ4;
  convert(source, dir / "ours", options);
  const test::ResidentFile ours(dir / "ours");
  const auto mlx = test::raw_tensors(test::demo_mlx_model());
  std::size_t modules = 0;
  for (const auto& [name, tensor] : mlx) {
    if (!name.ends_with(".scales")) continue;
    const std::string module = name.substr(0, name.size() - 7);
    ++modules;
    if (module.find("switch_mlp") != std::string::npos) continue;
    for (const char* part : {".weight", ".scales", ".biases"}) {
      const std::string canonical = module.substr(std::string("language_model.").size());
      EXPECT_EQ(ours.bytes(canonical + part) == mlx.at(module + part).bytes, true)
          << module << part;
    }
  }
  EXPECT_EQ(modules, 53U);
  convert(test::demo_mlx_model(), dir / "theirs");
  for (std::uint32_t l = 0; l < 4; ++l) {
    EXPECT_EQ(file_bytes(dir / "ours", test::layer_path(l)) ==
                  file_bytes(dir / "theirs", test::layer_path(l)),
              true)
        << "layer " << l;
  }
}

// Text and wrapper form of one random model: hidden size 128, expert width 64, six experts.
TEST(ConvertGolden, FamiliesGiveTheSameBytes) {
  MOE_REQUIRE_MODEL(text, "families/qwen3_5_moe_text");
  MOE_REQUIRE_MODEL(hub, "families/qwen3_5_moe_hub");
  for (std::uint64_t page : {1U, 4096U, 16384U}) {
    const TempDir dir;
    ConvertOptions options;
    options.page_size = page;
    options.expert_format = QFormatId::kQ5;
    const ConvertReport text_report = convert(text, dir / "text", options);
    const ConvertReport hub_report = convert(hub, dir / "hub", options);
    EXPECT_TRUE(text_report.skipped_tensors.empty());
    EXPECT_EQ(hub_report.skipped_tensors.size(), 6U);
    EXPECT_EQ(text_report.expert_size, 3U * (64 * 128 * 5 / 8 + 64 * 128 / 64 * 4));
    EXPECT_NE(text_report.expert_size % 4096, 0U);
    EXPECT_EQ(file_bytes(dir / "text", "model_weights.bin") ==
                  file_bytes(dir / "hub", "model_weights.bin"),
              true);
    for (std::uint32_t l = 0; l < 4; ++l) {
      EXPECT_EQ(file_bytes(dir / "text", test::layer_path(l)) ==
                    file_bytes(dir / "hub", test::layer_path(l)),
                true);
    }
  }
}

TEST(ConvertGolden, SmallMoeInFiveShardsIsCopied) {
  MOE_REQUIRE_MODEL(source, "small-moe");
  const TempDir dir;
  const ConvertReport report = convert(source, dir / "model");
  EXPECT_EQ(report.expert_format, "bf16");
  const auto raw = test::raw_tensors(source);
  ASSERT_OK_AND_ASSIGN(const PackManifest pack, read_pack_manifest(dir / "model/packed_experts"));
  ASSERT_EQ(pack.num_layers, 8U);
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    std::string expected;
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
        expected += raw.at("model.layers." + std::to_string(l) + ".mlp.experts." +
                           std::to_string(e) + "." + projection + ".weight")
                        .bytes;
      }
    }
    EXPECT_EQ(file_bytes(dir / "model", test::layer_path(l)) == expected, true) << "layer " << l;
  }
  const test::ResidentFile residents(dir / "model");
  for (const auto& [name, tensor] : raw) {
    if (name.find(".mlp.experts.") != std::string::npos) continue;
    EXPECT_EQ(residents.bytes(name) == tensor.bytes, true) << name;
  }
}

}  // namespace
}  // namespace moepack::convert_golden_test
