// Ids that were sampled come back with the texts that they made.
#include "runtime/service/sampled_texts.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/support/test_models.h"

namespace moepack::sampled_texts_test {
namespace {

using Ids = std::vector<std::int32_t>;

class SampledTextsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::load(test::demo_mlx_model() / "tokenizer.json");
    ASSERT_TRUE(loaded.is_ok());
    tokenizer_ = std::move(loaded).value();
  }
  Ids encoded(const std::string& text) {
    Result<Ids> ids = texts_.encode(*tokenizer_, {.text = text, .from_user = {}});
    EXPECT_TRUE(ids.is_ok());
    return ids.is_ok() ? ids.value() : Ids{};
  }
  void remember(const std::string& text, const Ids& ids, const Ids& sampled) {
    texts_.remember(*tokenizer_, {.text = text, .from_user = {}}, ids, sampled);
  }

  std::optional<Tokenizer> tokenizer_;
  SampledTexts texts_{1U << 20};
};

TEST_F(SampledTextsTest, AHistoryKeepsTheIdsThatWereSampled) {
  const std::string prompt = "one two";
  const Ids asked = encoded(prompt);
  // Byte by byte, as no tokenizer would split it.
  Ids sampled;
  for (const char letter : std::string(" three")) sampled.push_back(encoded({letter}).front());
  ASSERT_NE(encoded(" three"), sampled);
  remember(prompt, asked, sampled);
  Ids wanted = asked;
  wanted.insert(wanted.end(), sampled.begin(), sampled.end());
  EXPECT_EQ(encoded(prompt + " three"), wanted);
}

TEST_F(SampledTextsTest, APromptAskedAgainHasNoIdsWithoutBytes) {
  const std::string prompt = "one two";
  const Ids asked = encoded(prompt);
  const std::int32_t unknown = tokenizer_->size() + 5;  // a row of padding of the vocabulary
  ASSERT_TRUE(tokenizer_->bytes(unknown).empty());
  remember(prompt, asked, {unknown, unknown});
  EXPECT_EQ(encoded(prompt), asked);
}

}  // namespace
}  // namespace moepack::sampled_texts_test
