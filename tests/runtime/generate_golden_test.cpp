// Greedy texts that transformers wrote, token by token.
#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/generate.h"
#include "tests/support/converted_model.h"
#include "tests/support/test_models.h"

namespace moepack::generate_golden_test {
namespace {

void expect_greedy(const std::filesystem::path& checkpoint,
                   EngineOptions (*make)(const std::filesystem::path&)) {
  const test::TempDir dir;
  const std::filesystem::path model = test::convert_for_test(checkpoint, dir);
  ASSERT_FALSE(model.empty());
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(model / "tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(make(model)));
  std::ifstream in(checkpoint / "golden/greedy.json");
  for (const auto& sample : nlohmann::json::parse(in)) {
    const std::string prompt = sample["prompt"];
    ASSERT_OK_AND_ASSIGN(const std::vector<std::int32_t> ids, tokenizer.encode(prompt));
    EXPECT_EQ(ids, sample["ids"].get<std::vector<std::int32_t>>());
    GenerateOptions options;
    options.max_tokens = sample["out"].size();
    options.sampling.temperature = 0;
    std::string streamed;
    ASSERT_OK_AND_ASSIGN(const GenerateResult result,
                         generate(*engine, tokenizer, ids, options,
                                  [&](std::string_view piece) { streamed += piece; }));
    EXPECT_EQ(result.tokens, sample["out"].get<std::vector<std::int32_t>>()) << prompt;
    EXPECT_EQ(result.text, sample["text"].get<std::string>());
    EXPECT_EQ(streamed, result.text);
    EXPECT_EQ(result.reason, StopReason::kLength);
  }
}

TEST(GenerateGolden, DemoBf16Reference) {
  MOE_REQUIRE_MODEL(model, "demo-moe");
  expect_greedy(model, test::reference_options);
}

TEST(GenerateGolden, SmallBf16Reference) {
  MOE_REQUIRE_MODEL(model, "small-moe");
  expect_greedy(model, test::reference_options);
}

TEST(GenerateGolden, SmallBf16Fast) {
  MOE_REQUIRE_MODEL(model, "small-moe");
  expect_greedy(model, test::fast_options);
}

TEST(Generate, StopIdsComeFromGenerationConfig) {
  const test::TempDir dir;
  ModelConfig config;
  config.vocab_size = 100;
  config.eos_token_ids = {7};
  ASSERT_OK_AND_ASSIGN(std::vector<std::int32_t> ids, read_stop_ids(dir.path(), config));
  EXPECT_EQ(ids, std::vector<std::int32_t>{7});
  std::ofstream(dir / "generation_config.json") << R"({"eos_token_id": [3, 99]})";
  ASSERT_OK_AND_ASSIGN(ids, read_stop_ids(dir.path(), config));
  EXPECT_EQ(ids, (std::vector<std::int32_t>{3, 99}));
  std::ofstream(dir / "generation_config.json") << R"({"eos_token_id": 100})";
  test::expect_error(read_stop_ids(dir.path(), config).status(), StatusCode::kCorrupt,
                     {"generation_config.json", "eos_token_id"});
}

}  // namespace
}  // namespace moepack::generate_golden_test
