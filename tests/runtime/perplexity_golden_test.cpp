// Perplexities that PyTorch computed in float32 from the same weights (llama-perplexity's protocol
// where the text is scored). 0.02 % on the reference backend, 0.2 % on the fast one; and the fast
// backend against the reference one token by token.
#include <gtest/gtest.h>
#include <cmath>
#include <filesystem>
#include <vector>

#include "runtime/score/kl_scoring.h"
#include "runtime/score/perplexity.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/support/converted_model.h"
#include "tests/support/test_models.h"

namespace moepack::perplexity_golden_test {
namespace {

constexpr double kReferenceTolerance = 2e-4;
constexpr double kFastTolerance = 2e-3;

std::vector<std::int32_t> text_tokens(const std::filesystem::path& model,
                                      const std::filesystem::path& text) {
  const auto tokenizer = Tokenizer::load(model / "tokenizer.json");
  EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const std::vector<char> bytes = test::read_golden<char>(text);
  const auto ids = tokenizer.value().encode(std::string_view(bytes.data(), bytes.size()));
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  return ids.value();
}

void expect_ppl(const EngineOptions& engine_options, std::span<const std::int32_t> tokens,
                bool all_positions, double expected, double tolerance) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::open(engine_options));
  ASSERT_OK_AND_ASSIGN(const PerplexityReport report,
                       score_perplexity(tokens, {.context = 512, .all_positions = all_positions},
                                        engine->window_forward()));
  std::printf("%s: ppl %.5f, expected %.5f (%+.4f %%), %zu scores\n",
              std::string(engine->kernels_name()).c_str(), report.ppl, expected,
              100 * (report.ppl / expected - 1), report.tokens_scored);
  EXPECT_NEAR(report.ppl / expected, 1.0, tolerance);
}

// Both backends on the golden token ids, every position scored.
void expect_token_ppl(const std::filesystem::path& checkpoint, const std::filesystem::path& ids,
                      double expected) {
  const test::TempDir dir;
  const std::filesystem::path model = test::convert_for_test(checkpoint, dir);
  ASSERT_FALSE(model.empty());
  const std::vector<std::int32_t> tokens = test::read_golden<std::int32_t>(ids);
  ASSERT_EQ(tokens.size(), 8193U);
  expect_ppl(test::reference_options(model), tokens, true, expected, kReferenceTolerance);
  expect_ppl(test::fast_options(model), tokens, true, expected, kFastTolerance);
}

TEST(PerplexityGolden, DemoMlx4BitTokens) {
  const std::filesystem::path model = test::demo_mlx_model();
  expect_token_ppl(model, model / "golden/eval_tokens.i32", 11.06262321253156);
}

TEST(PerplexityGolden, DemoBf16Tokens) {
  MOE_REQUIRE_MODEL(model, "demo-moe");
  expect_token_ppl(model, model / "golden/eval_tokens.i32", 10.479437600346209);
}

TEST(PerplexityGolden, SmallBf16Tokens) {
  MOE_REQUIRE_MODEL(model, "small-moe");
  expect_token_ppl(model, model / "golden/eval_tokens.i32", 9.887240650875334);
}

TEST(PerplexityGolden, SmallBf16Text) {
  MOE_REQUIRE_MODEL(checkpoint, "small-moe");
  MOE_REQUIRE_MODEL(text, "../text/eval.txt");
  const test::TempDir dir;
  const std::filesystem::path model = test::convert_for_test(checkpoint, dir);
  ASSERT_FALSE(model.empty());
  const std::vector<std::int32_t> tokens = text_tokens(checkpoint, text);
  expect_ppl(test::reference_options(model), tokens, false, 9.27300, kReferenceTolerance);
  expect_ppl(test::fast_options(model), tokens, false, 9.27300, kFastTolerance);
}

// A GGUF model of small-moe against small-moe itself, both on the fast backend. Expected: what a
// float64 program that shares no code with this project makes of the two files.
void expect_gguf(const std::filesystem::path& gguf, double ppl, double kld, double same_top,
                 double same_top_tolerance) {
  MOE_REQUIRE_MODEL(checkpoint, "small-moe");
  MOE_REQUIRE_MODEL(text, "../text/eval.txt");
  const test::TempDir base_dir;
  const test::TempDir dir;
  const std::filesystem::path base = test::convert_for_test(checkpoint, base_dir);
  const std::filesystem::path model = test::convert_for_test(gguf, dir);
  ASSERT_FALSE(base.empty() || model.empty());
  // By the tokenizer that was rebuilt from the file's keys.
  const std::vector<std::int32_t> tokens = text_tokens(model, text);
  EXPECT_EQ(tokens, text_tokens(checkpoint, text));
  ASSERT_OK_AND_ASSIGN(const auto base_engine, Engine::open(test::fast_options(base)));
  ASSERT_OK_AND_ASSIGN(const auto engine, Engine::open(test::fast_options(model)));
  ASSERT_OK_AND_ASSIGN(const KlReport report,
                       compare_models(tokens, {.context = 512}, base_engine->window_forward(),
                                      engine->window_forward()));
  const KlSummary& found = report.summary;
  std::printf("ppl %.5f, expected %.4f; mean KLD %.6f, expected %.5f; same top %.3f %%\n",
              found.ppl.value, ppl, found.kld.value, kld, 100 * found.same_top.value);
  EXPECT_NEAR(found.ppl.value / ppl, 1.0, kReferenceTolerance);
  EXPECT_NEAR(found.kld.value / kld, 1.0, 0.02);
  EXPECT_NEAR(found.same_top.value, same_top, same_top_tolerance);
}

TEST(PerplexityGolden, SmallGgufOfIqBlocks) {
  MOE_REQUIRE_MODEL(gguf, "small-moe-Q3-gguf/small-moe-Q3-00001-of-00003.gguf");
  expect_gguf(gguf, 9.4012, 0.02888, 0.916, 0.002);
}

TEST(PerplexityGolden, SmallGgufOfKBlocks) {
  MOE_REQUIRE_MODEL(gguf, "small-moe-Q4_K_M.gguf");
  // The same top token is llama.cpp's figure, whose activations are rounded.
  expect_gguf(gguf, 9.4122, 0.02953, 0.9151, 0.004);
}

TEST(PerplexityGolden, FastBackendStaysWithTheReference) {
  MOE_REQUIRE_MODEL(checkpoint, "small-moe");
  const test::TempDir dir;
  const std::filesystem::path model = test::convert_for_test(checkpoint, dir);
  ASSERT_FALSE(model.empty());
  const auto tokens = test::read_golden<std::int32_t>(checkpoint / "golden/eval_tokens.i32");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> reference,
                       Engine::open(test::reference_options(model)));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> fast, Engine::open(test::fast_options(model)));
  ASSERT_OK_AND_ASSIGN(const KlReport report,
                       compare_models(tokens, {.context = 512}, reference->window_forward(),
                                      fast->window_forward()));
  std::printf("mean KLD %.3e, same top %.3f %%\n", report.summary.kld.value,
              100 * report.summary.same_top.value);
  EXPECT_LE(report.summary.kld.value, 1e-3);
  EXPECT_GE(report.summary.same_top.value, 0.99);
}

}  // namespace
}  // namespace moepack::perplexity_golden_test
