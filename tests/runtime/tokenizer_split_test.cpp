// Pre-token splits and normalization by themselves: small errors there hide behind equal ids.
#include "runtime/tokenizer/tokenizer_split.h"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <utf8proc.h>
#include <nlohmann/json.hpp>

#include "formats/base/utf8.h"
#include "runtime/tokenizer/tokenizer_added.h"
#include "runtime/tokenizer/tokenizer_nfc.h"
#include "runtime/tokenizer/tokenizer_regex.h"
#include "runtime/tokenizer/tokenizer_unicode.h"
#include "tests/support/crc32.h"
#include "tests/support/status_matchers.h"

namespace moepack::tokenizer_split_test {
namespace {

using nlohmann::json;
using test::expect_error;
using Pieces = std::vector<std::string>;

const Where kWhere{.file = "t.json"};
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json golden(const std::string& name) {
  std::ifstream in(std::string(MOEPACK_SOURCE_DIR) + "/tests/golden/tokenizer/" + name);
  EXPECT_TRUE(in.good()) << name;
  return json::parse(in);
}

Splitter compile(const std::string& pattern, SplitBehavior behavior = SplitBehavior::kIsolated,
                 bool invert = false) {
  Result<Splitter> result = Splitter::compile(
      SplitSpec{.pattern = pattern, .is_regex = true, .invert = invert, .behavior = behavior},
      kWhere);
  EXPECT_OK(result);
  return std::move(result).value();
}

Pieces split(const Splitter& splitter, std::string_view text) {
  SplitScratch scratch;
  Pieces pieces;
  EXPECT_OK(splitter.split(text, scratch, [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return Status::ok();
  }));
  return pieces;
}

Pieces split(const std::string& pattern, std::string_view text,
             SplitBehavior behavior = SplitBehavior::kIsolated, bool invert = false) {
  return split(compile(pattern, behavior, invert), text);
}

TEST(Split, GoldenPiecesOfEveryPattern) {
  for (const json& item : golden("splits.json")) {
    const auto pattern = item["pattern"].get<std::string>();
    SCOPED_TRACE(pattern);
    const Splitter splitter =
        compile(pattern, item["behavior"] == "Isolated" ? SplitBehavior::kIsolated
                                                        : SplitBehavior::kContiguous);
    for (const json& sample : item["samples"]) {
      std::vector<std::size_t> lengths;
      for (const std::string& piece : split(splitter, sample[0].get<std::string>())) {
        lengths.push_back(piece.size());
      }
      EXPECT_EQ(lengths, sample[1].get<std::vector<std::size_t>>()) << sample[0].dump();
    }
  }
}

TEST(Split, GoldenPiecesAroundEveryCodePoint) {
  const json sweeps = golden("sweeps.json");
  ASSERT_EQ(sweeps["splits"].size(), 3U);
  for (const json& item : sweeps["splits"]) {
    const auto pattern = item["pattern"].get<std::string>();
    const Splitter splitter = compile(pattern);
    SplitScratch scratch;
    const auto found = test::sweep_crc32([&](const std::string& c) {
      const std::string text = "ab" + c + "cd " + c + " 1" + c + "\n" + c + c + "'" + c;
      std::string lengths;
      EXPECT_OK(splitter.split(text, scratch, [&](std::string_view piece) {
        lengths += static_cast<char>(piece.size());
        return Status::ok();
      }));
      return lengths;
    });
    EXPECT_EQ(found, item["crc"].get<std::vector<std::uint32_t>>()) << pattern;
  }
}

TEST(Split, QwenPatternByHand) {
  const Splitter splitter = compile(kQwen35);
  EXPECT_EQ(split(splitter, "I'll say it's 42.\n\n  Ok"),
            (Pieces{"I", "'ll", " say", " it", "'s", " ", "4", "2", ".\n\n", " ", " Ok"}));
  EXPECT_EQ(split(splitter, "a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(split(splitter, "a \u00a0\u3000b"), (Pieces{"a", " \u00a0", "\u3000b"}));
  // U+180E is not White_Space, whatever PCRE2's \s says; U+017F is an s without case.
  EXPECT_EQ(split(splitter, " \u180e"), (Pieces{" \u180e"}));
  EXPECT_EQ(split(splitter, "it'\u017f"), (Pieces{"it", "'\u017f"}));
  EXPECT_EQ(split(splitter, "e\u0301\u0301x"), (Pieces{"e\u0301\u0301x"}));
  // A letter younger than PCRE2's tables (U+1C8A, Unicode 16.0) is a letter, here and there.
  EXPECT_EQ(split(splitter, "a\u1c8ab c"), (Pieces{"a\u1c8ab", " c"}));
}

TEST(Split, Behaviors) {
  const char* text = "a--b-";
  using B = SplitBehavior;
  EXPECT_EQ(split("-", text, B::kIsolated), (Pieces{"a", "-", "-", "b", "-"}));
  EXPECT_EQ(split("-", text, B::kRemoved), (Pieces{"a", "b"}));
  EXPECT_EQ(split("-", text, B::kRemoved, true), (Pieces{"-", "-", "-"}));
  EXPECT_EQ(split("-", text, B::kMergedWithPrevious), (Pieces{"a-", "-", "b-"}));
  EXPECT_EQ(split("-", text, B::kMergedWithNext), (Pieces{"a", "-", "-b", "-"}));
  EXPECT_EQ(split("-", text, B::kContiguous), (Pieces{"a", "--", "b", "-"}));
  EXPECT_EQ(split("-", "", B::kIsolated), Pieces{});
  EXPECT_EQ(split("x*", "aé", B::kIsolated), (Pieces{"a", "é"}));
}

TEST(Split, LiteralTextIsNoPattern) {
  ASSERT_OK_AND_ASSIGN(const Splitter splitter,
                       Splitter::compile(SplitSpec{.pattern = "a.(é", .is_regex = false}, kWhere));
  EXPECT_EQ(split(splitter, "xa.(éa..."), (Pieces{"x", "a.(é", "a..."}));
}

TEST(Split, AnErrorOfTheSinkEndsTheSplit) {
  const Splitter splitter = compile("a");
  SplitScratch scratch;
  int calls = 0;
  const Status status = splitter.split("aaa", scratch, [&](std::string_view) {
    ++calls;
    return invalid_argument("enough");
  });
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(calls, 1);
}

TEST(Split, RepeatedGroupsOutgrowTheFixedStack) {
  // Backtracking points of a million rounds.
  const Splitter splitter = compile("(?:a|b)+c");
  std::string text(1 << 20, 'a');
  text += 'c';
  EXPECT_EQ(split(splitter, text).size(), 1U);
}

TEST(Split, CompiledAndInterpretedPatternsAgree) {
  // PCRE2 10.42's compiled code finds a match here that is none.
  EXPECT_EQ(split(R"((?>.+e|1)\w)", "2 1ae-"), (Pieces{"2 1ae-"}));
}

// Runs of one kind are the worst case of every pattern; twice the text may take little more than
// twice the time. Times are compared within one run, generously.
TEST(Split, TimeIsLinearInLongRuns) {
  const Splitter splitter = compile(kQwen35);
  for (const char* unit : {" ", "a", "\n", ".", "\u3000", "e\u0301", " \n"}) {
    const auto seconds = [&](std::size_t bytes) {
      std::string text;
      while (text.size() < bytes) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_GE(split(splitter, text + "x").size(), 1U);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const double one = seconds(1 << 18);
    const double sixteen = seconds(1 << 22);
    EXPECT_LT(sixteen, 16 * 8 * (one + 1e-3)) << "unit " << testing::PrintToString(unit);
  }
}

TEST(Regex, RefusesByNameWhatItDoesNotTranslate) {
  struct Case {
    const char* pattern;
    const char* part;
  };
  const Case cases[] = {
      {R"(a\b)", "\\b"},
      {R"(\Aa)", "\\A"},
      {R"((a)\1)", "\\1"},
      {R"(\h)", "\\h"},
      {R"((?<x>a))", "(?<x"},
      {R"((?i)a)", "(?i)"},
      {R"((*FAIL))", "(*FA"},
      {R"([a&&b])", "intersection"},
      {R"([a[b]])", "class in a class"},
      {R"([[:alpha:]])", "class in a class"},
      {R"([\P{L}x])", "negated set"},
      {R"([a-c-e])", "unescaped -"},
      {R"([\s-a])", "unescaped -"},
      {R"([]a])", "]"},
      {R"(\p{Greek})", "Greek"},
      {R"(\p{Mn})", "Mn"},
      {R"(a{2}?)", "suffix"},
      {R"(a{2,3}+)", "suffix"},
      {R"(a**)", "quantifier on a quantifier"},
      {R"(a{x})", "unescaped {"},
      {R"(a{100000})", "this long"},
      {R"((?:a*)*)", "match nothing"},
      {R"((?=a)*)", "assertion"},
      {R"(^*)", "assertion"},
      {R"(\xE9)", "byte beyond ASCII"},
      {R"((?i:é))", "caseless"},
      {R"((?i:st))", "\"st\""},
      {R"((?i:\p{Lu}))", "caseless property"},
      {R"((?i:[^a]))", "caseless negated class"},
  };
  for (const Case& c : cases) {
    expect_error(translate_regex(c.pattern, CategoryData::kComplete, kWhere).status(),
                 StatusCode::kUnsupported, {"t.json", "pattern, byte", c.part, "not implemented"});
  }
  const std::string deep = std::string(100, '(') + "a" + std::string(100, ')');
  expect_error(translate_regex(deep, CategoryData::kComplete, kWhere).status(),
               StatusCode::kUnsupported, {"nesting"});
}

TEST(Regex, InvalidPatternsAreCorrupt) {
  for (const char* pattern : {"a(b", "a)b", "[ab", "[", "[a-", "\\", "*a", "a|+", "(?:", "[b-a]",
                              "\\p{L", "\\p", "\\x{110000}", "\\x{D800}", "\\x{", "\\u12", "[\\"}) {
    expect_error(translate_regex(pattern, CategoryData::kComplete, kWhere).status(),
                 StatusCode::kCorrupt, {"pattern, byte"});
  }
}

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(normalize_nfc(text, storage));
}

TEST(AddedTokens, SingleWordKnowsEveryWordCharacter) {
  AddedTokenMatcher matcher;
  ASSERT_OK(
      matcher.add("ZQ", AddedTokenSpec{.content = "ZQ", .id = 7, .single_word = true}, kWhere));
  const auto found = test::sweep_crc32([&](const std::string& c) {
    bool is_token = false;
    EXPECT_OK(matcher.find(c + "ZQ", [&](std::int32_t id, std::string_view) {
      is_token = is_token || id == 7;
      return Status::ok();
    }));
    return std::string(1, is_token ? '\1' : '\0');
  });
  EXPECT_EQ(found, golden("sweeps.json")["single_word"].get<std::vector<std::uint32_t>>());
}

TEST(Nfc, GoldenFormOfEveryCodePointAmongMarks) {
  const auto found = test::sweep_crc32([](const std::string& c) {
    return nfc("a\u0345" + c + "e" + c + "\u0301\u0323 \u1100" + c + "\u11a8");
  });
  EXPECT_EQ(found, golden("sweeps.json")["nfc"].get<std::vector<std::uint32_t>>());
}

TEST(Nfc, ByHand) {
  EXPECT_EQ(nfc(""), "");
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("xe\u0301y\u0302z"), "xéŷz");
  EXPECT_EQ(nfc("\u0301"), "\u0301");                // nothing to join
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");  // reordered
  EXPECT_EQ(nfc("s\u0307\u0323"), "\u1e69");         // reordered and joined
  EXPECT_EQ(nfc("\u212b\u2126"), "ÅΩ");              // singletons
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "한");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");     // excluded from composition
  EXPECT_EQ(nfc("é\u0323x"), "\u1eb9\u0301x");  // the mark reaches into the last letter
  EXPECT_EQ(nfc("か\u3099日"), "が日");
}

TEST(Nfc, UnchangedAsciiIsNotCopied) {
  const std::string text = "plain ascii and café";
  std::string storage;
  EXPECT_EQ(normalize_nfc(text, storage).data(), text.data());
}

TEST(Nfc, ShortCutsOnlyPassCharactersThatStandAlone) {
  // The second halves of compositions, found from all decompositions.
  std::vector<bool> second(0x110000);
  for (char32_t c = 0; c < 0x110000; ++c) {
    utf8proc_int32_t parts[8];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 8,
                                               UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 1; i < count; ++i) {
      second[static_cast<std::size_t>(parts[i])] = true;
    }
  }
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (!starts_nfc_segment(c)) continue;
    SCOPED_TRACE(static_cast<std::uint32_t>(c));
    EXPECT_EQ(utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class, 0);
    EXPECT_FALSE(second[c]);
    EXPECT_FALSE(is_inert_in_unicode_9(c));
  }
}

TEST(Nfc, LongRunsOfMarksAreSortedInTime) {
  // 400,000 marks in alternating classes: a quadratic sort would take hours.
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += "\u0301\u0323";
  const std::string normal = nfc(text);
  // a + dot below, then the other dots below, then the acutes.
  EXPECT_EQ(normal.size(), 3U + 2U * 399999U);
  EXPECT_TRUE(normal.starts_with("\u1ea1\u0323\u0323"));
  EXPECT_TRUE(normal.ends_with("\u0301\u0301"));
}

TEST(Utf8, RoundTripsEveryCharacter) {
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c > 0xDFFF) append_utf8(c, all);
  }
  EXPECT_EQ(find_invalid_utf8(all), std::string_view::npos);
  const char* at = all.data();
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    ASSERT_TRUE(next_character(&at) == c) << static_cast<std::uint32_t>(c);
    const char* back = at;
    ASSERT_TRUE(previous_character(&back) == c) << static_cast<std::uint32_t>(c);
  }
}

}  // namespace
}  // namespace moepack::tokenizer_split_test
