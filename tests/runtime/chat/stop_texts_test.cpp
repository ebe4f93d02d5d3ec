#include "runtime/chat/stop_texts.h"

#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace moepack::test::stop_texts_test {
namespace {

struct Stopped {
  std::string text;
  std::optional<std::size_t> stop;
};

Stopped stop_in_pieces(const std::vector<std::string>& stops, std::string_view text,
                       const std::function<std::size_t()>& size) {
  StopTexts texts(stops);
  Stopped stopped;
  while (!text.empty()) {
    const std::size_t n = std::min(text.size(), size());
    const StopTexts::Step step = texts.push(text.substr(0, n));
    text.remove_prefix(n);
    stopped.text += step.text;
    if (step.stop) stopped.stop = step.stop;
  }
  stopped.text += texts.finish();
  return stopped;
}

// The definition, over the whole text.
Stopped stop_by_definition(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      const bool ends = !stops[i].empty() && text.substr(0, end).ends_with(stops[i]);
      if (ends && (!best || stops[i].size() > stops[*best].size())) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopTexts, FindsTheFirstAcrossBorders) {
  StopTexts texts({"STOP", "\n\n"});
  EXPECT_EQ(texts.push("one S").text, "one ");
  EXPECT_EQ(texts.push("TO").text, "");
  EXPECT_EQ(texts.push("RM\n").text, "STORM");
  const StopTexts::Step step = texts.push("\nSTOP");
  EXPECT_EQ(step.text, "");
  EXPECT_EQ(step.stop, 1u);
  EXPECT_EQ(texts.push("more").text, "");
  EXPECT_EQ(texts.finish(), "");
}

TEST(StopTexts, GivesBackWhatOnlyLookedLikeAStop) {
  StopTexts texts({"END"});
  EXPECT_EQ(texts.push("the EN").text, "the ");
  EXPECT_EQ(texts.finish(), "EN");
}

TEST(StopTexts, ARestartForgetsWhatWasHeldBack) {
  StopTexts texts({"END"});
  EXPECT_EQ(texts.push("the EN").text, "the ");
  EXPECT_EQ(texts.restart(), "EN");
  EXPECT_EQ(texts.push("D").text, "D");
  EXPECT_EQ(texts.push(" END").stop, 0U);
}

TEST(StopTexts, DoesNotDependOnPieces) {
  std::mt19937 random(3);
  const auto word = [&](std::size_t most) {
    std::string text;
    for (std::size_t n = random() % (most + 1); n > 0; --n) text += "ab"[random() % 2];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops = {word(5), word(5), word(3)};
    const std::string text = word(12);
    const Stopped expected = stop_by_definition(stops, text);
    const Stopped got = stop_in_pieces(stops, text, [&] { return 1 + random() % 4; });
    ASSERT_EQ(got.text, expected.text) << text;
    ASSERT_EQ(got.stop, expected.stop) << text;
  }
}

}  // namespace
}  // namespace moepack::test::stop_texts_test
