// Other engines' counts of expert use, written here from their descriptions.
#include "formats/calibration/foreign_profile.h"

#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

#include "formats/calibration/freq_dump.h"
#include "formats/calibration/hot_experts.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::foreign_profile_test {
namespace {

using Counts = std::vector<std::uint64_t>;

class ForeignProfile : public testing::Test {
 protected:
  Result<ProfileInput> read(std::string_view bytes, const ExpertShape& known = {}) {
    const auto path = dir_ / "input";
    std::ofstream(path, std::ios::binary) << bytes;
    return read_profile_input(path, known);
  }
  test::TempDir dir_;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// ---- FREQ_DUMP ----

constexpr const char* kLog =
    "loading\nFREQ_DUMP layer=0: 0:15 1:3 3:42\nFREQ_DUMP layer=1:\n"
    "tok 5: the FREQ_DUMP layer=1: 0:9 is no line of a dump\nFREQ_DUMP lay\n\n"
    "FREQ_DUMP layer=0: 1:4\r\nFREQ_DUMP layer=1: 2:1\nbye";

TEST_F(ForeignProfile, DumpsInALogAddUp) {
  ASSERT_OK_AND_ASSIGN(const ProfileInput input, read(kLog, {2, 4}));
  EXPECT_EQ(input.format, "FREQ_DUMP");
  EXPECT_EQ(input.profile.layers[0].counts, (Counts{15, 7, 0, 42}));
  EXPECT_EQ(input.profile.layers[1].counts, (Counts{0, 0, 1, 0}));
  EXPECT_EQ(input.profile.tokens, 0U);
  EXPECT_TRUE(input.notes.empty());
  // Another cut into pieces is the same log.
  for (std::size_t size = 1; size < 40; ++size) {
    const std::string file = "log";
    FreqDumpReader dump(file);
    for (std::string_view rest = kLog; !rest.empty();) {
      const std::string_view piece = rest.substr(0, size);
      ASSERT_OK(dump.feed(piece));
      rest.remove_prefix(piece.size());
    }
    ASSERT_OK(dump.finish());
    EXPECT_EQ(dump.lines(), 4U);
    ASSERT_OK_AND_ASSIGN(const ExpertProfile profile, dump.counts().profile({2, 4}, file));
    EXPECT_EQ(profile.layers[0].counts, (Counts{15, 7, 0, 42})) << size;
  }
}

TEST_F(ForeignProfile, DumpsNeedTheModelsShape) {
  test::expect_error(read(kLog).status(), StatusCode::kInvalidArgument, {"--num-layers"});
  test::expect_error(read(kLog, {2, 0}).status(), StatusCode::kInvalidArgument, {"--num-experts"});
  test::expect_error(read(kLog, {2, 3}).status(), StatusCode::kCorrupt, {"expert 3", "has 3"});
  test::expect_error(read(kLog, {1, 4}).status(), StatusCode::kCorrupt, {"layer 1", "has 1"});
  const char* empty_beyond = "FREQ_DUMP layer=0: 0:1\nFREQ_DUMP layer=1:\n";
  test::expect_error(read(empty_beyond, {1, 4}).status(), StatusCode::kCorrupt, {"layer 1"});
}

TEST_F(ForeignProfile, DumpsThatAreIncompleteAreNoted) {
  for (const char* log : {"FREQ_DUMP layer=0: 0:1\n",
                          "FREQ_DUMP layer=0: 0:1\nFREQ_DUMP layer=1: 0:1\nFREQ_DUMP layer=0:\n"}) {
    ASSERT_OK_AND_ASSIGN(const ProfileInput input, read(log, {2, 4}));
    ASSERT_EQ(input.notes.size(), 1U);
    EXPECT_NE(input.notes[0].find("may be cut"), std::string::npos);
  }
}

TEST_F(ForeignProfile, DamagedDumps) {
  for (const char* line :
       {"FREQ_DUMP layer=: 0:1", "FREQ_DUMP layer=x: 0:1", "FREQ_DUMP layer=0",
        "FREQ_DUMP layer=0 0:1", "FREQ_DUMP layer=0: 0",
        "FREQ_DUMP layer=0: 0:", "FREQ_DUMP layer=0: 0:x", "FREQ_DUMP layer=0: 0:1,1:2",
        "FREQ_DUMP layer=0: 1:1 0:1", "FREQ_DUMP layer=0: 1:1 1:1", "FREQ_DUMP layer=0: 0:-1",
        "FREQ_DUMP layer=0: 0:1  1:1", "FREQ_DUMP layer=70000:", "FREQ_DUMP layer=0: 70000:1",
        "FREQ_DUMP layer=0: 0:18446744073709551616",
        "FREQ_DUMP layer=0: 0:18446744073709551615\nFREQ_DUMP layer=0: 0:1"}) {
    const Status status = read("ok\n" + std::string(line) + "\n", {1, 8}).status();
    test::expect_error(status, StatusCode::kCorrupt, {"input", "offset"});
  }
  // Counted from the start of the file: 3 bytes, and "FREQ_DUMP layer=0: 0:".
  test::expect_error(read("ok\nFREQ_DUMP layer=0: 0:x\n", {1, 8}).status(), StatusCode::kCorrupt,
                     {"offset 24:"});
  test::expect_error(read("FREQ_DUMP layer=0: 0:4", {1, 8}).status(), StatusCode::kCorrupt,
                     {"cut off"});
}

TEST_F(ForeignProfile, DumpCutShortAnywhere) {
  test::drill_truncation("FREQ_DUMP layer=0: 0:15 1:3 3:42\n",
                         [this](std::string_view bytes) {
                           return read(bytes, {1, 4}).status();
                         },
                         {.refuses_extra_byte = false});
}

TEST_F(ForeignProfile, LongLinesOfALogArePassedOver) {
  const std::string noise(std::size_t{5} << 20, 'x');
  ASSERT_OK_AND_ASSIGN(const ProfileInput input,
                       read(noise + "\nFREQ_DUMP layer=0: 0:1\n" + noise, {1, 1}));
  EXPECT_EQ(input.profile.layers[0].counts, (Counts{1}));
}

// ---- freq-json ----

constexpr const char* kFreqJson =
    R"({"tokens": 1161, "K": 2, "layers": {"0": [3, 1], "1": [0, 2, 1]}})";

TEST_F(ForeignProfile, FreqJsonHasRanksAlone) {
  ASSERT_OK_AND_ASSIGN(const ProfileInput input, read(kFreqJson, {2, 4}));
  EXPECT_EQ(input.format, "freq-json");
  EXPECT_FALSE(input.profile.has_counts());
  EXPECT_EQ(input.profile.tokens, 1161U);
  EXPECT_EQ(input.profile.experts_per_token, 2U);
  EXPECT_EQ(input.profile.layers[0].ranks, (std::vector<std::uint32_t>{3, 1}));
  EXPECT_FALSE(input.notes.empty());
  EXPECT_FALSE(select_hot_by_coverage(input.profile, 0.8).is_ok());
  ASSERT_OK_AND_ASSIGN(const HotExperts hot, select_hot_by_number(input.profile, 1));
  EXPECT_EQ(hot.layers[1], (std::vector<std::uint32_t>{0}));
  ASSERT_OK_AND_ASSIGN(const ExpertProfile again,
                       parse_expert_profile(expert_profile_text(input.profile), "p"));
  EXPECT_EQ(again.layers[1].ranks, input.profile.layers[1].ranks);
  EXPECT_EQ(again.tokens, 1161U);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"[3, 1]", "[4, 1]"},
                                                        {"[3, 1]", "[1, 1]"},
                                                        {"[3, 1]", "{\"3\": 1}"},
                                                        {"\"1\": [", "\"2\": ["},
                                                        {"\"K\": 2", "\"K\": 5"},
                                                        {"\"K\": 2", "\"k\": 2"},
                                                        {"1161", "-1"}}) {
    EXPECT_FALSE(read(replaced(kFreqJson, from, to), {2, 4}).is_ok()) << to;
  }
  EXPECT_FALSE(read(kFreqJson).is_ok());
}

// ---- counts by layer and expert ----

constexpr const char* kCountsJson = R"({"0": {"3": 42, "0": 1}, "1": {}})";

TEST_F(ForeignProfile, CountsJson) {
  ASSERT_OK_AND_ASSIGN(const ProfileInput input, read(kCountsJson, {3, 4}));
  EXPECT_EQ(input.format, "counts-json");
  EXPECT_EQ(input.profile.layers[0].counts, (Counts{1, 0, 0, 42}));
  EXPECT_EQ(input.profile.layers[2].counts, (Counts{0, 0, 0, 0}));
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"3\"", "\"4\""},
                                                        {"\"1\"", "\"3\""},
                                                        {"42", "-42"},
                                                        {"42", "4.2"},
                                                        {"{}", "[]"},
                                                        {"\"3\"", "\"x\""},
                                                        {"\"1\"", "\"x\""}}) {
    EXPECT_FALSE(read(replaced(kCountsJson, from, to), {3, 4}).is_ok()) << to;
  }
  EXPECT_FALSE(read(kCountsJson).is_ok());
}

// ---- the hot cache's perf JSON ----

constexpr const char* kPerf = R"({"enabled": true, "mode": "update",
  "schema": "llama.cpp.moe_layer_opt_perf.v1", "n_expert": 4, "n_expert_used": 2, "updates": 3,
  "layers": [
    {"layer": 0, "calls": 9, "experts": [[0, 100]], "hot_experts": [[1, 5], [1, 2], [3, 0]],
     "cold_experts": [[2, 1], [1, 10]]},
    {"layer": 2, "experts": [[3, 4]], "hot_experts": [], "cold_experts": []},
    {"layer": 1}, {"layer": 2, "cold_experts": [[3, 1]]}]})";

TEST_F(ForeignProfile, PerfJson) {
  ASSERT_OK_AND_ASSIGN(const ProfileInput input, read(kPerf, {3, 0}));
  EXPECT_EQ(input.format, "hot-cache perf JSON");
  EXPECT_EQ(input.profile.experts_per_token, 2U);
  EXPECT_EQ(input.profile.tokens, 0U);
  EXPECT_EQ(input.profile.layers[0].counts, (Counts{0, 17, 1, 0}));  // not the raw counts
  EXPECT_EQ(input.profile.layers[1].counts, (Counts{0, 0, 0, 0}));
  EXPECT_EQ(input.profile.layers[2].counts, (Counts{0, 0, 0, 5}));
  EXPECT_OK(read(replaced(kPerf, "moe_layer_opt_perf", "moe_layer_perf"), {3, 4}));
  const std::string most = "18446744073709551615";
  ASSERT_OK_AND_ASSIGN(const ProfileInput full,
                       read(R"({"schema": "llama.cpp.moe_layer_perf.v1", "layers": [{"layer": 0,
                              "experts": [[0, )" +
                                most + R"(], [0, 7]]}]})",
                            {1, 1}));
  EXPECT_EQ(full.profile.layers[0].counts, (Counts{18446744073709551615U}));
}

TEST_F(ForeignProfile, PerfJsonThatIsNone) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"opt_perf.v1", "opt_perf.v2"},
           {"[2, 1]", "[4, 1]"},
           {"[2, 1]", "[2, -1]"},
           {"[2, 1]", "[2]"},
           {"[2, 1]", "[2, 1, 1]"},
           {"[2, 1]", "[2, 1.0]"},
           {"[2, 1]", "2"},
           {"\"layer\": 0", "\"layer\": -1"},
           {"\"layer\": 0", "\"layer\": 3"},
           {"\"layer\": 0,", ""},
           {"\"n_expert\": 4", "\"n_expert\": 0"},
           {"\"n_expert_used\": 2", "\"n_expert_used\": 5"},
           {"\"layers\": [", "\"layers\": 1, \"x\": ["}}) {
    EXPECT_FALSE(read(replaced(kPerf, from, to), {3, 0}).is_ok()) << to;
  }
  EXPECT_FALSE(read(kPerf).is_ok());
  test::expect_error(read(kPerf, {3, 8}).status(), StatusCode::kCorrupt, {"4 experts", "has 8"});
  test::expect_error(
      read(R"({"enabled":false,"mode":"off","schema":"llama.cpp.moe_layer_perf.v1","layers":[]})",
           {3, 4})
          .status(),
      StatusCode::kCorrupt, {"layers", "no counts"});
}

// ---- counts-binary ----

std::string counts_binary(std::vector<std::uint32_t> numbers) {
  std::string bytes(numbers.size() * 4, '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

TEST_F(ForeignProfile, CountsBinary) {
  std::vector<std::uint32_t> numbers{2, 512};
  numbers.resize(2 + 2 * 512);
  numbers[2 + 7] = 70;
  numbers[2 + 512 + 511] = 0xffffffff;
  const std::string bytes = counts_binary(numbers);
  ASSERT_OK_AND_ASSIGN(const ProfileInput input, read(bytes));
  EXPECT_EQ(input.format, "counts-binary");
  EXPECT_EQ(input.profile.shape, (ExpertShape{2, 512}));
  EXPECT_EQ(input.profile.layers[0].counts[7], 70U);
  EXPECT_EQ(input.profile.layers[1].counts[511], 0xffffffffU);
  EXPECT_EQ(layer_uses(input.profile.layers[0]), 70U);
  test::expect_error(read(bytes, {3, 512}).status(), StatusCode::kCorrupt, {"2 layers", "has 3"});
  test::expect_error(read(bytes.substr(0, 4000)).status(), StatusCode::kCorrupt,
                     {"4000 bytes", "4104"});
  test::drill_truncation(bytes, [this](std::string_view cut) { return read(cut).status(); },
                         {.step = 97});
  EXPECT_FALSE(read(counts_binary({0xffffffff, 512, 0})).is_ok());
  EXPECT_FALSE(read(counts_binary({1U << 31, 1U << 31})).is_ok());
}

// ---- telling them apart ----

TEST_F(ForeignProfile, WhatMatchesNothing) {
  for (const char* text : {"", " ", "{}", "[]", "[1]", "7", "hello\nworld\n", "{\"a\": {\"0\": 1}}",
                           "{\"layers\": {\"0\": [1]}}"}) {
    test::expect_error(read(text, {1, 4}).status(), StatusCode::kUnsupported,
                       {"input", "FREQ_DUMP", "freq-json", "perf JSON", "moepack.profile"});
  }
}

TEST_F(ForeignProfile, AListOfHotExpertsIsNoProfileAndSaysWhatItIsFor) {
  for (const char* text : {R"({"hot_experts": {"0": [1]}})",
                           R"({"threshold": 0.8, "num_layers": 1, "num_experts": 4, "total_hot": 1,
                               "total_cold": 3, "hot_experts": {"0": [1]}})"}) {
    test::expect_error(read(text, {1, 4}).status(), StatusCode::kUnsupported,
                       {"input", "list of hot experts", "tier --hot-experts"});
  }
}

TEST_F(ForeignProfile, OwnProfilesToo) {
  const char* own = R"({"format": "moepack.profile", "format_version": 1, "model": "m",
    "source_fingerprint": "0000000000000000", "num_layers": 1, "num_experts": 2,
    "experts_per_token": 1, "tokens": 3, "layers": [{"counts": [1, 2]}]})";
  ASSERT_OK_AND_ASSIGN(const ProfileInput input, read(own));
  EXPECT_EQ(input.profile.tokens, 3U);
  test::expect_error(read(own, {1, 4}).status(), StatusCode::kCorrupt, {"2 experts", "has 4"});
  EXPECT_FALSE(read(replaced(own, "moepack.profile", "moepack.other")).is_ok());
}

TEST_F(ForeignProfile, JsonCutShortAnywhere) {
  for (const char* text : {kFreqJson, kCountsJson, kPerf}) {
    test::drill_truncation(text, [this](std::string_view bytes) {
      return read(bytes, {3, 4}).status();
    });
  }
}

}  // namespace
}  // namespace moepack::foreign_profile_test
