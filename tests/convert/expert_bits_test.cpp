// Allocations of bits, against a text written here from the description of the format.
#include "convert/quantize/expert_bits.h"

#include <gtest/gtest.h>

#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"

namespace moepack::expert_bits_test {
namespace {

constexpr const char* kValid = R"({
  "format": "moepack.allocation",
  "format_version": 1,
  "model": "m",
  "source_fingerprint": "00000000000000ff",
  "method": "gptq",
  "num_layers": 2,
  "num_experts": 3,
  "group_size": 64,
  "target_bytes": 500000,
  "forecast": {"pack_bytes": 491520, "bits_per_weight": 3.25, "divergence": 0.05, "uniform_divergence": 0.0625},
  "layers": [
    {"layer": 0,
     "gate_proj": [2, 3, 4],
     "up_proj": [5, 6, 8],
     "down_proj": [8, 8, 2]},
    {"layer": 1,
     "gate_proj": [3, 3, 3],
     "up_proj": [2, 2, 2],
     "down_proj": [4, 5, 6]}
  ]
}
)";
constexpr const char* kForecast =
    "  \"forecast\": {\"pack_bytes\": 491520, \"bits_per_weight\": 3.25, \"divergence\": 0.05, "
    "\"uniform_divergence\": 0.0625},\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Result<ExpertBits> parse(std::string_view text) { return parse_expert_bits(text, "a.json"); }

TEST(ExpertBits, ReadsWhatIsThere) {
  ASSERT_OK_AND_ASSIGN(const ExpertBits b, parse(kValid));
  EXPECT_EQ(b.model, "m");
  EXPECT_EQ(b.source_fingerprint, 255U);
  EXPECT_EQ(b.method, "gptq");
  EXPECT_EQ(b.num_layers, 2U);
  EXPECT_EQ(b.num_experts, 3U);
  EXPECT_EQ(b.group_size, 64U);
  EXPECT_EQ(b.target_bytes, 500000U);
  EXPECT_EQ(b.forecast.pack_bytes, 491520U);
  EXPECT_EQ(b.forecast.bits_per_weight, 3.25);
  EXPECT_DOUBLE_EQ(b.forecast.gain(), 0.2);
  EXPECT_EQ(b.of(0, 1, Projection::kGate), 3U);
  EXPECT_EQ(b.of(0, 1, Projection::kUp), 6U);
  EXPECT_EQ(b.of(0, 2, Projection::kDown), 2U);
  EXPECT_EQ(b.of(1, 0, Projection::kDown), 4U);
}

TEST(ExpertBits, TextGivesTheSameTextBack) {
  ASSERT_OK_AND_ASSIGN(ExpertBits b, parse(kValid));
  EXPECT_EQ(expert_bits_text(b), kValid);
  b.forecast = {};
  const std::string without = replaced(kValid, kForecast, "");
  EXPECT_EQ(expert_bits_text(b), without);
  ASSERT_OK_AND_ASSIGN(const ExpertBits again, parse(without));
  EXPECT_EQ(again.forecast.pack_bytes, 0U);
  EXPECT_EQ(expert_bits_text(again), without);
}

TEST(ExpertBits, CutShortAnywhere) {
  const std::string text(kValid, std::string_view(kValid).size() - 1);  // without the last newline
  test::drill_truncation(text, [](std::string_view bytes) { return parse(bytes).status(); });
}

TEST(ExpertBits, RefusesWhatCannotBe) {
  struct Damage {
    const char* from;
    const char* to;
    StatusCode code;
    const char* key;
  };
  constexpr auto kBad = StatusCode::kCorrupt;
  constexpr auto kUnknown = StatusCode::kUnsupported;
  const std::vector<Damage> cases{
      {"moepack.allocation", "moepack.sensitivity", kBad, "format"},
      {"\"format_version\": 1", "\"format_version\": 0", kUnknown, "format_version"},
      {"\"model\"", "\"mdoel\"", kUnknown, "mdoel"},
      {"00000000000000ff", "0xff", kBad, "source_fingerprint"},
      {"\"num_layers\": 2", "\"num_layers\": 3", kBad, "layers"},
      {"\"num_layers\": 2", "\"num_layers\": 1", kBad, "layers"},
      {"\"num_layers\": 2", "\"num_layers\": -2", kBad, "num_layers"},
      {"\"num_experts\": 3", "\"num_experts\": 4", kBad, "layers[0].gate_proj"},
      {"\"num_experts\": 3", "\"num_experts\": 0", kBad, "num_experts"},
      {"\"group_size\": 64", "\"group_size\": -64", kBad, "group_size"},
      {"\"target_bytes\": 500000", "\"target_bytes\": -1", kBad, "target_bytes"},
      {"\"target_bytes\": 500000,", "", kBad, "target_bytes"},
      {"491520", "\"491520\"", kBad, "forecast.pack_bytes"},
      {"3.25", "-3.25", kBad, "forecast.bits_per_weight"},
      {"0.05,", "null,", kBad, "forecast.divergence"},
      {"0.0625", "\"NaN\"", kBad, "forecast.uniform_divergence"},
      {"\"divergence\"", "\"divergense\"", kUnknown, "divergense"},
      {"{\"layer\": 1", "{\"layer\": 2", kBad, "layers[1].layer"},
      {"[4, 5, 6]", "[4, 5]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, 6, 8]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, 7]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, 0]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, 1]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, 16]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, 260]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, 4294967298]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, -2]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, 6.0]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "[4, 5, \"6\"]", kBad, "layers[1].down_proj"},
      {"[4, 5, 6]", "456", kBad, "layers[1].down_proj"},
      {"\"up_proj\": [2, 2, 2],", "", kBad, "layers[1].up_proj"},
      {"\"up_proj\": [2, 2, 2]", "\"up\": [2, 2, 2]", kUnknown, "layers[1].up"},
  };
  for (const Damage& d : cases) {
    test::expect_error(parse(replaced(kValid, d.from, d.to)).status(), d.code, {"a.json", d.key});
  }
  test::expect_error(parse(replaced(kValid, "0.0625", "NaN")).status(), kBad, {"a.json"});
}

TEST(ExpertBits, LayersWithoutExperts) {
  const std::string all = kValid;
  const std::size_t second = all.find("{\"layer\": 1");
  const std::string dense = all.substr(0, second) + "{\"layer\": 1, \"dense\": true}\n  ]\n}\n";
  ASSERT_OK_AND_ASSIGN(const ExpertBits b, parse(dense));
  EXPECT_TRUE(b.layers[1][0].empty() && b.layers[1][1].empty() && b.layers[1][2].empty());
  EXPECT_EQ(expert_bits_text(b), dense);
  test::expect_error(parse(replaced(dense, "\"dense\": true", "\"dense\": 1")).status(),
                     StatusCode::kCorrupt, {"a.json", "layers[1].dense"});
  test::expect_error(parse(replaced(dense, "\"dense\"", "\"gate_proj\": [], \"dense\"")).status(),
                     StatusCode::kUnsupported, {"a.json", "layers[1].gate_proj"});
}

TEST(ExpertBits, HotAndCold) {
  HotExperts hot;
  hot.shape = {2, 4};
  hot.layers = {{3, 0}, {}};
  const ExpertBits b = hot_and_cold_bits(hot, 5, 3, 32);
  EXPECT_EQ(b.num_layers, 2U);
  EXPECT_EQ(b.num_experts, 4U);
  EXPECT_EQ(b.group_size, 32U);
  for (const auto& projection : b.layers[0]) {
    EXPECT_EQ(projection, (std::vector<std::uint8_t>{5, 3, 3, 5}));
  }
  for (const auto& projection : b.layers[1]) {
    EXPECT_EQ(projection, (std::vector<std::uint8_t>{3, 3, 3, 3}));
  }
  EXPECT_OK(parse(expert_bits_text(b)));
}

}  // namespace
}  // namespace moepack::expert_bits_test
