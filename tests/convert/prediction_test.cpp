// Tensors that predict further tokens, of families that number them as layers behind the last.
#include <gtest/gtest.h>

#include "convert/pack/convert.h"
#include "convert/verify/verify.h"
#include "formats/pack/prediction_manifest.h"
#include "tests/convert/model_files.h"
#include "tests/support/family_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::prediction_test {
namespace {

using test::TempDir;

struct Family {
  const char* model_type;
  const char* key;  // of config.json, of the number of such layers
};

// A model with a layer more than it has; the last becomes the one that predicts, with a tensor that
// joins it to the trunk.
std::uint32_t write_with_prediction(const std::filesystem::path& directory, const Family& family) {
  nlohmann::json config = test::family_config(family.model_type);
  const auto layers = config.at("num_hidden_layers").get<std::uint32_t>();
  config[family.key] = 0;
  config["num_hidden_layers"] = layers + 1;
  const auto parsed = parse_model_config(config.dump(), "config.json");
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  const ModelConfig& model = parsed.value().model;
  auto tensors = test::FamilyTensors(model, *architecture_of(model).value()).take();
  std::mt19937_64 random(5);
  const std::string block = "model.layers." + std::to_string(layers) + ".";
  tensors.push_back(test::random_tensor(block + "eh_proj.weight", {32, 64}, random));
  tensors.push_back({block + "enorm.weight_scale", DType::kF32, {}, std::string("\1\2\3\4", 4)});
  config["num_hidden_layers"] = layers;
  config[family.key] = 1;
  std::filesystem::create_directories(directory);
  test::write_file(directory / "config.json", config.dump());
  test::write_safetensors(directory / "model.safetensors", std::move(tensors));
  return layers;
}

ConvertReport convert(const std::filesystem::path& source, const std::filesystem::path& output,
                      bool keeps) {
  ConvertOptions options;
  options.source = source;
  options.output = output;
  options.threads = 3;
  options.keep_prediction = keeps;
  const auto report = convert_checkpoint(options, {});
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  return report.is_ok() ? report.value() : ConvertReport{};
}

TEST(Prediction, LayersBehindTheLastAreKeptAsTheyAre) {
  for (const Family& family :
       {Family{"kimi_k2", "num_nextn_predict_layers"},
        Family{"glm4_moe", "num_nextn_predict_layers"}, Family{"minimax_m2", "num_mtp_modules"}}) {
    SCOPED_TRACE(family.model_type);
    const TempDir dir;
    const std::uint32_t layers = write_with_prediction(dir / "source", family);
    const ConvertReport plain = convert(dir / "source", dir / "plain", false);
    const ConvertReport kept = convert(dir / "source", dir / "kept", true);
    EXPECT_EQ(plain.prediction_tensors, 0U);
    EXPECT_EQ(kept.prediction_tensors, plain.skipped_tensors.size());
    EXPECT_TRUE(kept.skipped_tensors.empty());
    // Nothing else changes but the list of what was left out.
    auto with = test::directory_contents(dir / "kept");
    const auto without = test::directory_contents(dir / "plain");
    ASSERT_EQ(with.size(), without.size() + 2);
    for (const auto& [name, bytes] : without) {
      if (name == "packed_experts/layout.json") continue;
      EXPECT_EQ(with.at(name) == bytes, true) << name;
    }
    // Byte for byte the source's, each at a multiple of 64.
    const auto source = test::raw_tensors(dir / "source");
    const std::string& data = with.at(kPredictionDataName);
    ASSERT_OK_AND_ASSIGN(const auto manifest, read_prediction_manifest(dir / "kept"));
    const std::string prefix = "model.layers." + std::to_string(layers) + ".";
    std::size_t expected = 0;
    for (const auto& [name, tensor] : source) expected += name.starts_with(prefix) ? 1U : 0U;
    EXPECT_EQ(manifest->tensors.size(), expected);
    EXPECT_GT(expected, 10U);
    for (const PredictionTensor& tensor : manifest->tensors) {
      const test::RawTensor& from = source.at(tensor.name);
      EXPECT_EQ(tensor.type, from.dtype);
      EXPECT_EQ(tensor.shape, from.shape);
      EXPECT_EQ(tensor.offset % 64, 0U);
      EXPECT_EQ(data.substr(tensor.offset, tensor.size) == from.bytes, true) << tensor.name;
    }
    VerifyOptions check;
    check.path = dir / "kept";
    check.against = dir / "source";
    const auto verified = verify_model(check, {});
    ASSERT_TRUE(verified.is_ok()) << verified.status().message();
    EXPECT_EQ(verified.value().num_differences, 0U);
    EXPECT_EQ(verified.value().prediction_tensors, expected);
  }
}

TEST(Prediction, WithoutSuchTensorsANoteSaysThatNothingIsKept) {
  const TempDir dir;
  test::write_family_model(dir / "source", test::family_config("olmoe"));
  const ConvertReport report = convert(dir / "source", dir / "model", true);
  EXPECT_EQ(report.prediction_tensors, 0U);
  ASSERT_FALSE(report.notes.empty());
  EXPECT_NE(report.notes.back().find("--keep-prediction keeps nothing"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(dir / "model" / kPredictionManifestName));
}

}  // namespace
}  // namespace moepack::prediction_test
