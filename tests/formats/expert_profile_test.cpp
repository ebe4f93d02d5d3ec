// Profiles of expert use and lists of hot experts, against texts written here from their
// descriptions (docs/profile-format.md; flash-moe's hot_experts.json).
#include "formats/calibration/expert_profile.h"

#include <limits>

#include <gtest/gtest.h>

#include "formats/calibration/hot_experts.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"

namespace moepack::expert_profile_test {
namespace {

constexpr const char* kValid = R"({
  "format": "moepack.profile", "format_version": 1, "model": "m",
  "source_fingerprint": "00000000000000ff",
  "num_layers": 2, "num_experts": 4, "experts_per_token": 2, "tokens": 5,
  "layers": [
    {"counts": [5, 0, 3, 2], "weight_sums": [2.5, 0, 1.75, 0.75],
     "weight_square_sums": [1.25, 0, 1.1, 0.5]},
    {"counts": [1, 4, 1, 4], "weight_sums": [0.5, 2, 0.5, 2],
     "weight_square_sums": [0.25, 1, 0.25, 1]}
  ]
})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_parts(const Status& status, StatusCode code, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) test::expect_error(status, code, {part});
}

Result<ExpertProfile> parse(std::string_view text) { return parse_expert_profile(text, "p.json"); }

TEST(ExpertProfile, ReadsWhatIsThere) {
  ASSERT_OK_AND_ASSIGN(const ExpertProfile p, parse(kValid));
  EXPECT_EQ(p.model, "m");
  EXPECT_EQ(p.source_fingerprint, 255U);
  EXPECT_EQ(p.shape, (ExpertShape{2, 4}));
  EXPECT_EQ(p.experts_per_token, 2U);
  EXPECT_EQ(p.tokens, 5U);
  EXPECT_TRUE(p.has_counts());
  EXPECT_TRUE(p.has_weights());
  EXPECT_EQ(p.layers[0].counts, (std::vector<std::uint64_t>{5, 0, 3, 2}));
  EXPECT_EQ(p.layers[1].weight_sums, (std::vector<double>{0.5, 2, 0.5, 2}));
  EXPECT_EQ(p.layers[0].weight_square_sums, (std::vector<double>{1.25, 0, 1.1, 0.5}));
  EXPECT_EQ(used_experts(p.layers[0]), (std::vector<std::uint32_t>{0, 2, 3}));
  EXPECT_EQ(used_experts(p.layers[1]), (std::vector<std::uint32_t>{1, 3, 0, 2}));
}

TEST(ExpertProfile, TextGivesTheSameValuesBack) {
  ASSERT_OK_AND_ASSIGN(ExpertProfile p, parse(kValid));
  p.layers[0].weight_sums = {1.0 / 3, 0, 1e-300, 0.1 + 0.2};
  p.model = "a \"b\"\n";
  const std::string text = expert_profile_text(p);
  ASSERT_OK_AND_ASSIGN(const ExpertProfile again, parse(text));
  EXPECT_EQ(again.layers[0].weight_sums, p.layers[0].weight_sums);  // bit for bit
  EXPECT_EQ(again.model, p.model);
  EXPECT_EQ(expert_profile_text(again), text);
  ExpertProfile ranks;
  ranks.shape = {2, 3};
  ranks.layers = {{.counts = {}, .weight_sums = {}, .weight_square_sums = {}, .ranks = {2, 0}}, {}};
  ASSERT_OK_AND_ASSIGN(const ExpertProfile read, parse(expert_profile_text(ranks)));
  EXPECT_FALSE(read.has_counts());
  EXPECT_EQ(read.layers[0].ranks, (std::vector<std::uint32_t>{2, 0}));
}

TEST(ExpertProfile, RefusesWhatCannotBe) {
  struct Case {
    const char* from;
    const char* to;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases{
      {"moepack.profile", "moepack.allocation", StatusCode::kCorrupt, {"format"}},
      {"\"format_version\": 1", "\"format_version\": 2", StatusCode::kUnsupported, {"is 2"}},
      {"\"model\"", "\"mdoel\"", StatusCode::kUnsupported, {"mdoel"}},
      {"\"num_layers\": 2", "\"num_layers\": 3", StatusCode::kCorrupt, {"layers", "3"}},
      {"\"num_layers\": 2", "\"num_layers\": 4000000000", StatusCode::kCorrupt, {"4000000000"}},
      {"\"num_experts\": 4", "\"num_experts\": 5", StatusCode::kCorrupt, {"layers[0].counts"}},
      {"\"tokens\": 5", "\"tokens\": 6", StatusCode::kCorrupt, {"layers[0].counts", "12"}},
      {"\"tokens\": 5", "\"tokens\": 281474976710656", StatusCode::kCorrupt, {"tokens"}},
      {"\"experts_per_token\": 2", "\"experts_per_token\": 0", StatusCode::kCorrupt, {"tokens"}},
      {"\"experts_per_token\": 2", "\"experts_per_token\": 5", StatusCode::kCorrupt, {"per_token"}},
      // The sum is right, but no token chooses an expert twice.
      {"[5, 0, 3, 2]", "[6, 0, 2, 2]", StatusCode::kCorrupt, {"layers[0].counts[0]"}},
      {"[1, 4, 1, 4]", "[1, 4, 1, -4]", StatusCode::kCorrupt, {"layers[1].counts[3]"}},
      {"[2.5, 0,", "[2.5, 0.5,", StatusCode::kCorrupt, {"layers[0].weight_sums[1]", "uses"}},
      {"[2.5, 0,", "[-2.5, 0,", StatusCode::kCorrupt, {"layers[0].weight_sums[0]"}},
      {"[2.5, 0,", "[null, 0,", StatusCode::kCorrupt, {"layers[0].weight_sums[0]"}},
      {"[0.25, 1, 0.25, 1]", "[0.25, 1, 0.25]", StatusCode::kCorrupt, {"weight_square_sums"}},
      {"\"weight_sums\": [0.5, 2, 0.5, 2],", "", StatusCode::kCorrupt, {"layers[1].weight_sums"}},
      {"{\"counts\": [1, 4, 1, 4],", "{\"ranks\": [1],", StatusCode::kCorrupt, {"counts"}}};
  for (const Case& c : cases) {
    expect_parts(parse(replaced(kValid, c.from, c.to)).status(), c.code, c.parts);
  }
  const std::string unknown_tokens = replaced(kValid, "\"tokens\": 5", "\"tokens\": 0");
  EXPECT_OK(parse(replaced(unknown_tokens, "[5, 0, 3, 2]", "[50, 0, 3, 2]")));
  test::expect_error(
      parse(replaced(unknown_tokens, "[5, 0, 3, 2]", "[18446744073709551615, 0, 1, 0]")).status(),
      StatusCode::kCorrupt, {"layers[0].counts[2]", "64 bits"});
}

TEST(ExpertProfile, CutShortAnywhere) {
  test::drill_truncation(kValid, [](std::string_view bytes) { return parse(bytes).status(); });
}

TEST(AddProfiles, SumsAndWhatItKnows) {
  ASSERT_OK_AND_ASSIGN(const ExpertProfile a, parse(kValid));
  ASSERT_OK_AND_ASSIGN(const ExpertProfile both, add_profiles(a, a));
  EXPECT_EQ(both.tokens, 10U);
  EXPECT_EQ(both.layers[0].counts, (std::vector<std::uint64_t>{10, 0, 6, 4}));
  EXPECT_EQ(both.layers[0].weight_square_sums, (std::vector<double>{2.5, 0, 2.2, 1}));
  EXPECT_OK(parse(expert_profile_text(both)));
  ExpertProfile foreign;
  foreign.shape = a.shape;
  foreign.layers.resize(2);
  foreign.layers[0].counts = {0, 7, 0, 0};
  foreign.layers[1].counts = {0, 0, 0, 1};
  for (const bool first : {true, false}) {
    ASSERT_OK_AND_ASSIGN(const ExpertProfile sum,
                         first ? add_profiles(a, foreign) : add_profiles(foreign, a));
    EXPECT_EQ(sum.model, "m");
    EXPECT_EQ(sum.source_fingerprint, 255U);
    EXPECT_EQ(sum.experts_per_token, 2U);
    EXPECT_EQ(sum.tokens, 0U);  // the foreign one's are not known
    EXPECT_FALSE(sum.has_weights());
    EXPECT_EQ(sum.layers[0].counts, (std::vector<std::uint64_t>{5, 7, 3, 2}));
    EXPECT_OK(parse(expert_profile_text(sum)));
  }
}

TEST(AddProfiles, RefusesOthers) {
  ASSERT_OK_AND_ASSIGN(const ExpertProfile a, parse(kValid));
  const auto refused = [&](const ExpertProfile& b, const std::vector<std::string>& parts) {
    expect_parts(add_profiles(a, b).status(), StatusCode::kInvalidArgument, parts);
  };
  ExpertProfile b = a;
  b.shape.num_layers = 1;
  b.layers.pop_back();
  refused(b, {"2 layers of 4", "1 layers of 4"});
  b = a;
  b.experts_per_token = 3;
  refused(b, {"2 and 3 experts"});
  b = a;
  b.model = "n";
  EXPECT_OK(add_profiles(a, b));  // of the same source
  b.source_fingerprint = 254;
  refused(b, {"m and n"});
  b = a;
  b.tokens = 0;
  b.layers[1].counts[0] = std::numeric_limits<std::uint64_t>::max() - 18;
  for (std::size_t e = 1; e < 4; ++e) b.layers[1].counts[e] = 3;
  refused(b, {"layer 1", "64 bits"});  // though every single count fits
  b = a;
  b.layers[0].weight_sums[0] = std::numeric_limits<double>::max();
  ExpertProfile c = b;
  test::expect_error(add_profiles(b, c).status(), StatusCode::kInvalidArgument, {"expert 0"});
  b = ExpertProfile{};
  b.shape = a.shape;
  b.layers.resize(2);
  test::expect_error(add_profiles(a, b).status(), StatusCode::kUnsupported, {"ranks"});
}

TEST(SelectHot, SmallestPrefixThatCovers) {
  ASSERT_OK_AND_ASSIGN(const ExpertProfile p, parse(kValid));
  // Layer 0: 5 + 3 of 10 are exactly 0.8. Layer 1: 4, 4, 1, 1 with ties by id.
  ASSERT_OK_AND_ASSIGN(const HotExperts hot, select_hot_by_coverage(p, 0.8));
  EXPECT_EQ(hot.layers[0], (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(hot.layers[1], (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(hot.total_hot(), 4U);
  ASSERT_OK_AND_ASSIGN(const HotExperts more, select_hot_by_coverage(p, 0.81));
  EXPECT_EQ(more.layers[0], (std::vector<std::uint32_t>{0, 2, 3}));
  EXPECT_EQ(more.layers[1], (std::vector<std::uint32_t>{1, 3, 0}));
  ASSERT_OK_AND_ASSIGN(const HotExperts all, select_hot_by_coverage(p, 1));
  EXPECT_EQ(all.layers[0].size(), 3U);  // never an unused one
  ASSERT_OK_AND_ASSIGN(const HotExperts three, select_hot_by_number(p, 3));
  EXPECT_EQ(three.layers[1], (std::vector<std::uint32_t>{1, 3, 0}));
  for (const double bad : {0.0, -1.0, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(select_hot_by_coverage(p, bad).is_ok()) << bad;
  }
  EXPECT_FALSE(select_hot_by_number(p, 0).is_ok());
  EXPECT_FALSE(select_hot_by_number(p, 5).is_ok());
  ExpertProfile unused = p;
  unused.layers[1].counts.assign(4, 0);
  ASSERT_OK_AND_ASSIGN(const HotExperts none, select_hot_by_coverage(unused, 1));
  EXPECT_TRUE(none.layers[1].empty());
}

TEST(SelectHot, RanksTellNoCoverage) {
  ExpertProfile p;
  p.shape = {1, 4};
  p.layers.resize(1);
  p.layers[0].ranks = {3, 1, 2};
  test::expect_error(select_hot_by_coverage(p, 0.8).status(), StatusCode::kUnsupported, {"ranks"});
  ASSERT_OK_AND_ASSIGN(const HotExperts hot, select_hot_by_number(p, 2));
  EXPECT_EQ(hot.layers[0], (std::vector<std::uint32_t>{3, 1}));
}

// ---- hot_experts.json ----

constexpr const char* kProfileExperts = R"({"threshold": 0.8, "num_layers": 2, "num_experts": 8,
  "total_hot": 5, "total_cold": 11, "hot_experts": {"0": [7, 2], "1": [0, 5, 3]}})";
constexpr const char* kSensitivity = R"({"description": "x", "target_gb": 150, "actual_gb": 149.5,
  "num_hot_total": 3, "num_cold_total": 13, "expert_size_4bit": 1, "expert_size_2bit": 1,
  "num_layers": 2, "num_experts": 8, "threshold": null, "hot_experts": {"1": [0, 3, 5]}})";
constexpr const char* kHeuristic = R"({"threshold": 0.25, "num_layers": 2, "num_experts": 8,
  "total_hot": 4, "total_cold": 12, "heuristic": true, "hot_experts": {"0": [0, 1], "1": [0, 1]}})";

Result<HotExperts> parse_hot(std::string_view text, const ExpertShape& expected = {}) {
  return parse_hot_experts(text, "hot.json", expected);
}

TEST(HotExpertsJson, EveryToolsForm) {
  ASSERT_OK_AND_ASSIGN(const HotExperts a, parse_hot(kProfileExperts, {2, 8}));
  EXPECT_EQ(a.threshold, 0.8);
  EXPECT_EQ(a.layers[0], (std::vector<std::uint32_t>{7, 2}));
  EXPECT_FALSE(a.heuristic);
  ASSERT_OK_AND_ASSIGN(const HotExperts b, parse_hot(kSensitivity));
  EXPECT_FALSE(b.threshold.has_value());
  EXPECT_TRUE(b.layers[0].empty());
  EXPECT_EQ(b.layers[1], (std::vector<std::uint32_t>{0, 3, 5}));
  ASSERT_OK_AND_ASSIGN(const HotExperts c, parse_hot(kHeuristic));
  EXPECT_TRUE(c.heuristic);
  for (const char* text : {kProfileExperts, kSensitivity, kHeuristic}) {
    ASSERT_OK_AND_ASSIGN(const HotExperts once, parse_hot(text));
    const std::string written = hot_experts_text(once);
    ASSERT_OK_AND_ASSIGN(const HotExperts again, parse_hot(written));
    EXPECT_EQ(again.layers, once.layers);
    EXPECT_EQ(again.threshold, once.threshold);
    EXPECT_EQ(again.heuristic, once.heuristic);
    EXPECT_EQ(hot_experts_text(again), written);
  }
}

TEST(HotExpertsJson, ShapeFromElsewhere) {
  const char* bare = R"({"hot_experts": {"1": [7]}})";
  test::expect_error(parse_hot(bare).status(), StatusCode::kCorrupt, {"hot.json", "num_layers"});
  ASSERT_OK_AND_ASSIGN(const HotExperts hot, parse_hot(bare, {2, 8}));
  EXPECT_EQ(hot.shape, (ExpertShape{2, 8}));
  test::expect_error(parse_hot(kProfileExperts, {3, 8}).status(), StatusCode::kCorrupt,
                     {"num_layers", "is 2", "has 3"});
  test::expect_error(parse_hot(kProfileExperts, {2, 512}).status(), StatusCode::kCorrupt,
                     {"num_experts", "is 8", "has 512"});
}

TEST(HotExpertsJson, RefusesWhatCannotBe) {
  struct Case {
    const char* from;
    const char* to;
    const char* part;
  };
  for (const Case& c : std::vector<Case>{{"[7, 2]", "[8, 2]", "hot_experts.0[0]"},
                                         {"[7, 2]", "[7, -2]", "hot_experts.0[1]"},
                                         {"[7, 2]", "[7, 1e1]", "hot_experts.0[1]"},
                                         {"[7, 2]", "[7, 7]", "hot_experts.0[1]"},
                                         {"[7, 2]", "{\"7\": 2}", "hot_experts.0"},
                                         {"\"1\": [0", "\"2\": [0", "hot_experts.2"},
                                         {"\"1\": [0", "\"01\": [0", "hot_experts.01"},
                                         {"\"1\": [0", "\"0\": [0", "\"0\""},
                                         {"\"hot_experts\"", "\"layers\"", "hot_experts"},
                                         {"\"total_hot\": 5", "\"total_hot\": 6", "total_hot"},
                                         {"\"total_cold\": 11", "\"total_cold\": 1", "total_cold"},
                                         {"0.8", "1.5", "threshold"},
                                         {"0.8", "\"0.8\"", "threshold"}}) {
    const Status status = parse_hot(replaced(kProfileExperts, c.from, c.to)).status();
    EXPECT_FALSE(status.is_ok()) << c.to;
    EXPECT_NE(status.message().find("hot.json"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(c.part), std::string::npos) << status.message();
  }
}

TEST(HotExpertsJson, CutShortAnywhere) {
  for (const char* text : {kProfileExperts, kSensitivity, kHeuristic}) {
    test::drill_truncation(text, [](std::string_view bytes) { return parse_hot(bytes).status(); });
  }
}

}  // namespace
}  // namespace moepack::expert_profile_test
