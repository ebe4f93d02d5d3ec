// Tables of sensitivities, against a text written here from the description of the format.
#include "convert/quantize/sensitivity_table.h"

#include <gtest/gtest.h>

#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"

namespace moepack::sensitivity_table_test {
namespace {

constexpr const char* kValid = R"({
  "format": "moepack.sensitivity",
  "format_version": 1,
  "model": "m \"1\"",
  "source_fingerprint": "00000000000000ff",
  "plan": "fedcba9876543210",
  "method": "gptq",
  "num_layers": 3,
  "num_experts": 2,
  "hidden_size": 256,
  "expert_width": 128,
  "group_size": 64,
  "page_size": 4096,
  "bits": [2, 3, 8],
  "layers": [
    {"layer": 0,
     "response": [0.25, 1e-05],
     "share": [0.5, 0],
     "gate_proj": {"2": [1.5, 0.125],
                   "3": [0.75, 0.0625],
                   "8": [1e-09, 0]},
     "up_proj": {"2": [2.5, 0.25],
                   "3": [1, 0.03125],
                   "8": [0.001, 3.33333e-06]},
     "down_proj": {"2": [3, 7],
                   "3": [2, 6],
                   "8": [1, 5]}},
    {"layer": 1,
     "response": [0, 2],
     "share": [0.1, 0.9],
     "gate_proj": {"2": [11, 12],
                   "3": [13, 14],
                   "8": [15, 16]},
     "up_proj": {"2": [21, 22],
                   "3": [23, 24],
                   "8": [25, 26]},
     "down_proj": {"2": [31, 32],
                   "3": [33, 34],
                   "8": [35, 1.23457e+20]}}
  ]
}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Result<SensitivityTable> parse(std::string_view text) { return parse_sensitivity(text, "s.json"); }

TEST(SensitivityTable, ReadsWhatIsThere) {
  ASSERT_OK_AND_ASSIGN(const SensitivityTable t, parse(kValid));
  EXPECT_EQ(t.model, "m \"1\"");
  EXPECT_EQ(t.source_fingerprint, 255U);
  EXPECT_EQ(t.plan, 0xfedcba9876543210U);
  EXPECT_EQ(t.method, "gptq");
  EXPECT_EQ(t.num_layers, 3U);
  EXPECT_EQ(t.num_experts, 2U);
  EXPECT_EQ(t.hidden_size, 256U);
  EXPECT_EQ(t.expert_width, 128U);
  EXPECT_EQ(t.group_size, 64U);
  EXPECT_EQ(t.page_size, 4096U);
  EXPECT_EQ(t.bits, (std::vector<std::uint32_t>{2, 3, 8}));
  ASSERT_EQ(t.layers.size(), 2U);
  EXPECT_FALSE(t.is_finished());
  EXPECT_EQ(t.layers[0].response.per_energy, 0.25);
  EXPECT_EQ(t.layers[0].response.per_amplitude, 1e-5);
  EXPECT_EQ(t.layers[1].share, (std::vector<double>{0.1, 0.9}));
  // [projection][width][expert]
  EXPECT_EQ(t.layers[0].error[0][1], (std::vector<double>{0.75, 0.0625}));
  EXPECT_EQ(t.layers[0].error[1][2], (std::vector<double>{0.001, 3.33333e-06}));
  EXPECT_EQ(t.layers[1].error[2][0], (std::vector<double>{31, 32}));
  EXPECT_EQ(t.layers[1].error[2][2][1], 1.23457e+20);
}

TEST(SensitivityTable, TextGivesTheSameTextBack) {
  ASSERT_OK_AND_ASSIGN(SensitivityTable t, parse(kValid));
  EXPECT_EQ(sensitivity_text(t), kValid);
  t.model = "a\n\"\\";
  t.layers.resize(1);
  t.layers[0].error[1][0] = {1.0 / 3, 123456789.0};  // kept to six digits
  const std::string text = sensitivity_text(t);
  ASSERT_OK_AND_ASSIGN(const SensitivityTable again, parse(text));
  EXPECT_EQ(again.model, t.model);
  EXPECT_NEAR(again.layers[0].error[1][0][0], 1.0 / 3, 1e-6);
  EXPECT_EQ(sensitivity_text(again), text);
  t.layers.clear();
  ASSERT_OK_AND_ASSIGN(const SensitivityTable empty, parse(sensitivity_text(t)));
  EXPECT_TRUE(empty.layers.empty());
}

TEST(SensitivityTable, CutShortAnywhere) {
  const std::string text(kValid, std::string_view(kValid).size() - 1);  // without the last newline
  test::drill_truncation(text, [](std::string_view bytes) { return parse(bytes).status(); });
}

struct Damage {
  const char* from;
  const char* to;
  StatusCode code;
  const char* key;
};

void expect_refused(const Damage& d) {
  test::expect_error(parse(replaced(kValid, d.from, d.to)).status(), d.code, {"s.json", d.key});
}

TEST(SensitivityTable, RefusesAWrongHead) {
  constexpr auto kBad = StatusCode::kCorrupt;
  const std::vector<Damage> cases{
      {"moepack.sensitivity", "moepack.allocation", kBad, "format"},
      {"\"format_version\": 1", "\"format_version\": 2", StatusCode::kUnsupported,
       "format_version"},
      {"\"model\"", "\"mdoel\"", StatusCode::kUnsupported, "mdoel"},
      {"\"model\": \"m \\\"1\\\"\"", "\"model\": 7", kBad, "model"},
      {"00000000000000ff", "ff", kBad, "source_fingerprint"},
      {"fedcba9876543210", "fedcba987654321g", kBad, "plan"},
      {"\"method\": \"gptq\",", "", kBad, "method"},
      {"\"num_layers\": 3", "\"num_layers\": 1", kBad, "layers"},
      {"\"num_layers\": 3", "\"num_layers\": 0", kBad, "num_layers"},
      {"\"num_layers\": 3", "\"num_layers\": -3", kBad, "num_layers"},
      {"\"num_layers\": 3", "\"num_layers\": 4000000000", kBad, "num_layers"},
      {"\"num_experts\": 2", "\"num_experts\": 3", kBad, "layers[0].share"},
      {"\"num_experts\": 2", "\"num_experts\": 1", kBad, "layers[0].share"},
      {"\"num_experts\": 2", "\"num_experts\": 2.0", kBad, "num_experts"},
      {"\"hidden_size\": 256", "\"hidden_size\": 0", kBad, "hidden_size"},
      {"\"hidden_size\": 256", "\"hidden_size\": 18446744073709551615", kBad, "hidden_size"},
      {"\"expert_width\": 128", "\"expert_width\": \"128\"", kBad, "expert_width"},
      {"\"group_size\": 64", "\"group_size\": 0", kBad, "group_size"},
      {"\"page_size\": 4096", "\"page_size\": 0", kBad, "page_size"},
      {"[2, 3, 8]", "[2, 7, 8]", kBad, "bits"},
      {"[2, 3, 8]", "[1, 3, 8]", kBad, "bits"},
      {"[2, 3, 8]", "[2, 3, 16]", kBad, "bits"},
      {"[2, 3, 8]", "[2, 3, 4294967300]", kBad, "bits"},
      {"[2, 3, 8]", "[2, 3, -8]", kBad, "bits"},
      {"[2, 3, 8]", "[3, 2, 8]", kBad, "bits"},
      {"[2, 3, 8]", "[2, 2, 8]", kBad, "bits"},
      {"[2, 3, 8]", "[]", kBad, "bits"},
      {"[2, 3, 8]", "[2, 3, 5, 8]", kBad, "layers[0].gate_proj.5"},
  };
  for (const Damage& d : cases) expect_refused(d);
}

TEST(SensitivityTable, RefusesWrongNumbersOfLayers) {
  constexpr auto kBad = StatusCode::kCorrupt;
  const std::vector<Damage> cases{
      {"{\"layer\": 1", "{\"layer\": 0", kBad, "layers[1].layer"},
      {"{\"layer\": 1", "{\"later\": 1", StatusCode::kUnsupported, "later"},
      {"[0.25, 1e-05]", "[0.25]", kBad, "layers[0].response"},
      {"[0.25, 1e-05]", "[-0.25, 1e-05]", kBad, "layers[0].response"},
      {"[0.5, 0]", "[0.5, \"NaN\"]", kBad, "layers[0].share"},
      {"[0.5, 0]", "[0.5, null]", kBad, "layers[0].share"},
      {"[0.5, 0]", "[0.5, [0]]", kBad, "layers[0].share"},
      {"[0.1, 0.9]", "0.1", kBad, "layers[1].share"},
      {"[23, 24]", "[23, 24, 25]", kBad, "layers[1].up_proj.3"},
      {"[23, 24]", "[23]", kBad, "layers[1].up_proj.3"},
      {"[23, 24]", "[23, -24]", kBad, "layers[1].up_proj.3"},
      {"[23, 24]", "[23, true]", kBad, "layers[1].up_proj.3"},
      {"\"3\": [23, 24],", "", kBad, "layers[1].up_proj.3"},
      {"\"3\": [23, 24]", "\"4\": [23, 24]", kBad, "layers[1].up_proj.3"},
      {"\"3\": [23, 24],", "\"3\": [23, 24], \"4\": [1, 1],", kBad, "layers[1].up_proj"},
      {"\"down_proj\": {\"2\": [31,", "\"down_porj\": {\"2\": [31,", StatusCode::kUnsupported,
       "down_porj"},
  };
  for (const Damage& d : cases) expect_refused(d);
  // No JSON at all: where in the file.
  for (const char* number : {"NaN", "Infinity", "1e999", "0x10"}) {
    const Status status =
        parse(replaced(kValid, "[23, 24]", std::string("[23, ") + number + "]")).status();
    test::expect_error(status, StatusCode::kCorrupt, {"s.json"});
  }
}

// The second of three layers has no experts.
TEST(SensitivityTable, LayersWithoutExperts) {
  const std::string all = kValid;
  const std::size_t second = all.find("    {\"layer\": 1");
  const std::string dense =
      replaced(all.substr(0, second) + "    {\"layer\": 1, \"dense\": true}\n  ]\n}\n",
               "\"num_layers\": 3,", "\"num_layers\": 3,\n  \"expert_layers\": 2,");
  ASSERT_OK_AND_ASSIGN(const SensitivityTable t, parse(dense));
  EXPECT_EQ(t.all_experts(), 4U);
  EXPECT_EQ(t.layers[0].experts(), 2U);
  EXPECT_EQ(t.layers[1].experts(), 0U);
  EXPECT_TRUE(t.layers[1].error[2][2].empty());
  EXPECT_EQ(sensitivity_text(t), dense);
  const std::vector<Damage> cases{
      {"\"expert_layers\": 2", "\"expert_layers\": 4", StatusCode::kCorrupt, "expert_layers"},
      {"\"expert_layers\": 2", "\"expert_layers\": 0", StatusCode::kCorrupt, "expert_layers"},
      // Finished, with one layer of experts of two.
      {"\"num_layers\": 3", "\"num_layers\": 2", StatusCode::kCorrupt, "layers: has 1"},
      {"\"dense\": true", "\"dense\": false", StatusCode::kCorrupt, "layers[1].dense"},
      {"\"dense\": true", "\"dense\": true, \"share\": []", StatusCode::kUnsupported, "share"},
      {"{\"layer\": 1, \"dense\"", "{\"layer\": 2, \"dense\"", StatusCode::kCorrupt,
       "layers[1].layer"},
  };
  for (const Damage& d : cases) {
    test::expect_error(parse(replaced(dense, d.from, d.to)).status(), d.code, {"s.json", d.key});
  }
}

TEST(SensitivityTable, DivergenceByHand) {
  const DivergenceResponse response{.per_energy = 3, .per_amplitude = 0.5};
  EXPECT_DOUBLE_EQ(divergence_of(response, 4), 3 * 4 + 0.5 * 2);
  EXPECT_DOUBLE_EQ(divergence_of(response, 0), 0);
  // An error of a quarter of the tokens: of them 16, so the amplitude 4, on the mean 1.
  EXPECT_DOUBLE_EQ(divergence_of(response, 4, 0.25), 3 * 4 + 0.5 * 4 * 0.25);
}

}  // namespace
}  // namespace moepack::sensitivity_table_test
