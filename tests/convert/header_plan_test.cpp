// A plan from config.json and the index alone is the plan of the whole checkpoint.
#include "convert/pack/header_plan.h"

#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>
#include <string>

#include "convert/pack/plan.h"
#include "formats/base/file.h"
#include "formats/checkpoint/shard_index.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace moepack::header_plan_test {
namespace {

namespace fs = std::filesystem;

class Headers : public ::testing::TestWithParam<test::TinyLayout> {
 protected:
  void SetUp() override {
    test::TinyModelOptions tiny;
    tiny.layout = GetParam();
    tiny.shards = 3;
    tiny.hidden_size = 128;  // groups of 64 fit, so that formats can be chosen
    test::write_tiny_model(dir_ / "whole", tiny);
    fs::create_directories(dir_ / "heads");
    for (const char* name : {"config.json", "model.safetensors.index.json"}) {
      fs::copy_file(dir_ / "whole" / name, dir_ / "heads" / name);
    }
  }
  void expect_same(const ConvertOptions& options) {
    ASSERT_OK_AND_ASSIGN(const ModelSource source, ModelSource::open(dir_ / "whole"));
    ASSERT_OK_AND_ASSIGN(const ConvertPlan whole, make_plan(source, options));
    ASSERT_OK_AND_ASSIGN(const HeaderPlan heads, plan_from_headers(dir_ / "heads", options));
    EXPECT_EQ(heads.residents.data_size, whole.resident.data_size);
    ASSERT_EQ(heads.residents.tensors.size(), whole.resident.tensors.size());
    for (std::size_t i = 0; i < whole.resident.tensors.size(); ++i) {
      EXPECT_EQ(heads.residents.tensors[i].name, whole.resident.tensors[i].name);
      EXPECT_EQ(heads.residents.tensors[i].format, whole.resident.tensors[i].format)
          << whole.resident.tensors[i].name;
      EXPECT_EQ(heads.residents.tensors[i].bytes, whole.resident.tensors[i].bytes);
    }
    EXPECT_EQ(heads.pack.layouts, whole.pack.layouts);
    ASSERT_EQ(heads.pack.layers.size(), whole.pack.layers.size());
    for (std::size_t i = 0; i < whole.pack.layers.size(); ++i) {
      EXPECT_EQ(heads.pack.layers[i].file_size, whole.pack.layers[i].file_size);
    }
  }

  test::TempDir dir_;
};

TEST_P(Headers, PlanWhatTheCheckpointWouldBecome) {
  EXPECT_TRUE(lacks_shards(dir_ / "heads"));
  EXPECT_FALSE(lacks_shards(dir_ / "whole"));
  expect_same({});
}

TEST_P(Headers, InOtherFormats) {
  ConvertOptions options;
  options.expert_format = QFormatId::kQ2;
  options.resident_format = QFormatId::kQ4;
  expect_same(options);
}

TEST_P(Headers, AShardThatIsThereChangesNothing) {
  ASSERT_OK_AND_ASSIGN(const ShardIndex index, read_shard_index(dir_ / "heads"));
  ASSERT_EQ(index.shards.size(), 3U);
  fs::copy_file(dir_ / "whole" / index.shards[1], dir_ / "heads" / index.shards[1]);
  EXPECT_TRUE(lacks_shards(dir_ / "heads"));
  expect_same({});
}

// Whatever is cut off the index, it is refused in one line, or read as it is.
TEST_P(Headers, TruncatedIndexes) {
  const fs::path file = dir_ / "heads" / "model.safetensors.index.json";
  ASSERT_OK_AND_ASSIGN(const std::string text, read_text_file(file, 1 << 20));
  for (std::size_t size = 0; size < text.size(); size += 97) {
    std::ofstream(file, std::ios::trunc) << text.substr(0, size);
    const Result<HeaderPlan> plan = plan_from_headers(dir_ / "heads", {});
    ASSERT_FALSE(plan.is_ok()) << size;
    EXPECT_EQ(plan.status().message().find('\n'), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Headers,
                         ::testing::Values(test::TinyLayout::kPerExpert,
                                           test::TinyLayout::kFusedWrapper,
                                           test::TinyLayout::kMlx));

class HeaderErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    test::TinyModelOptions tiny;
    tiny.shards = 2;
    test::write_tiny_model(dir_.path() / "whole", tiny);
    fs::create_directories(dir_ / "heads");
    fs::copy_file(dir_ / "whole" / "config.json", dir_ / "heads" / "config.json");
    const fs::path index = dir_ / "whole" / "model.safetensors.index.json";
    index_ = nlohmann::json::parse(std::ifstream(index));
  }
  Status plan() {
    std::ofstream(dir_ / "heads" / "model.safetensors.index.json") << index_.dump();
    return plan_from_headers(dir_ / "heads", {}).status();
  }

  test::TempDir dir_;
  nlohmann::json index_;
};

TEST_F(HeaderErrors, NameTheTensor) {
  EXPECT_OK(plan());
  const auto whole = index_;
  index_["weight_map"].erase("model.layers.1.mlp.experts.2.up_proj.weight");
  test::expect_error(plan(), StatusCode::kNotFound,
                     {"model.layers.1.mlp.experts.2.up_proj.weight", "missing in the index"});
  index_ = whole;
  index_["weight_map"].erase("model.layers.0.mlp.gate.weight");
  test::expect_error(plan(), StatusCode::kNotFound, {"model.layers.0.mlp.gate.weight"});
  index_ = whole;
  index_["weight_map"]["model.layers.0.mlp.surprise.weight"] = "model-00001-of-00002.safetensors";
  test::expect_error(plan(), StatusCode::kUnsupported, {"surprise"});
  index_ = whole;
  index_["weight_map"]["model.layers.77.input_layernorm.weight"] =
      "model-00001-of-00002.safetensors";
  test::expect_error(plan(), StatusCode::kCorrupt, {"layer 77", "4 layers"});
  index_ = whole;
  index_["weight_map"]["model.layers.0.mlp.experts.99.up_proj.weight"] =
      "model-00001-of-00002.safetensors";
  test::expect_error(plan(), StatusCode::kCorrupt, {"expert 99"});
}

}  // namespace
}  // namespace moepack::header_plan_test
