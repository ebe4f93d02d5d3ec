// The ledger of a pack: its text against text written by hand, its reading of text from anywhere.
#include "convert/report/quality_ledger.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "convert/report/pack_report.h"
#include "convert/report/quality_summary.h"
#include "tests/support/status_matchers.h"

namespace moepack::quality_ledger_test {
namespace {

using Experts = std::vector<std::uint32_t>;

// Two layers of three experts, as docs/pack-format.md describes them; written without the library.
constexpr const char* kLedger = R"({"error": "output", "methods": ["rtn", "clip", "grid", "gptq"],
"layers": [
{"layer": 0, "samples": [100, 0, 7],
 "gate_proj": {"method": [3, 2, 3], "before": [0.5, 0.4, 0.3], "after": [0.1, 0.4, 0.2],
               "weight_error": [1]},
 "up_proj": {"method": [3, 2, 2], "before": [0.5, 0.6, 0.3], "after": [0.2, 0.6, 0.1],
             "weight_error": [1]},
 "down_proj": {"method": [3, 2, 3], "before": [1, 0, 0.3], "after": [0.25, 0, 2.5e-1],
               "weight_error": [1]}},
{"layer": 1, "samples": [64, 63, 200],
 "gate_proj": {"method": [3, 3, 3], "before": [0.5, 0.5, 0.5], "after": [0.3, 0.3, 0.3]},
 "up_proj": {"method": [3, 3, 3], "before": [0.5, 0.5, 0.5], "after": [0.25, 0.25, 0.25]},
 "down_proj": {"method": [0, 3, 3], "before": [0.9, 0.5, 0.5], "after": [0.9, 0.125, 0.125]}}]})";

std::optional<QualityLedger> read(const std::string& ledger) {
  const auto report =
      parse_pack_report(R"({"report": {"notes": ["a"], "ledger": )" + ledger +
                            R"(, "skipped_tensors": ["b"]}, "layers": [{"ledger": 1}]})",
                        "layout.json");
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  if (!report.is_ok()) return std::nullopt;
  // What stands around the ledger is read as ever.
  EXPECT_EQ(report.value().notes, std::vector<std::string>{"a"});
  EXPECT_EQ(report.value().skipped_tensors, std::vector<std::string>{"b"});
  return report.value().ledger;
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kLedger;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// A pack of these dimensions whose matrices are all q2 g32.
PackManifest pack_of(std::uint32_t layers, std::uint32_t experts) {
  PackManifest pack;
  pack.num_layers = layers;
  pack.num_experts = experts;
  WeightFormat q2;
  q2.id = QFormatId::kQ2;
  q2.group_size = 32;
  pack.layouts.push_back(*make_expert_layout(64, 64, {q2, q2, q2}));
  pack.layers.resize(layers);
  for (LayerEntry& layer : pack.layers) layer.experts.resize(experts);
  return pack;
}

TEST(QualityLedger, IsReadAsItStands) {
  const auto ledger = read(kLedger);
  ASSERT_TRUE(ledger.has_value());
  EXPECT_EQ(ledger->error, QuantError::kOutput);
  EXPECT_EQ(ledger->methods, (std::vector<std::string>{"rtn", "clip", "grid", "gptq"}));
  ASSERT_EQ(ledger->layers.size(), 2U);
  EXPECT_EQ(ledger->layers[0].samples, (std::vector<std::uint64_t>{100, 0, 7}));
  const ProjectionQuality& down = ledger->layers[0].of(Projection::kDown);
  EXPECT_EQ(down.method, (std::vector<std::uint8_t>{3, 2, 3}));
  EXPECT_EQ(down.before, (std::vector<float>{1, 0, 0.3F}));
  EXPECT_EQ(down.after, (std::vector<float>{0.25F, 0, 0.25F}));
  EXPECT_EQ(down.weight_error, Experts{1});
  EXPECT_EQ(ledger->layers[1].layer, 1U);
  EXPECT_TRUE(ledger->layers[1].of(Projection::kGate).weight_error.empty());
}

// What the writer writes is what another parser reads, to four digits.
TEST(QualityLedger, IsWrittenWithFourDigits) {
  QualityLedger ledger;
  ledger.error = QuantError::kOutput;
  LayerQuality layer;
  layer.layer = 7;
  layer.samples = {std::uint64_t{1} << 40, 0};
  for (ProjectionQuality& quality : layer.projections) {
    quality.method = {3, 0};
    quality.before = {0.123456789F, 12345.6F};
    quality.after = {1.23456e-7F, std::numeric_limits<float>::quiet_NaN()};
  }
  layer.of(Projection::kDown).weight_error = {1};
  ledger.layers = {layer, layer};
  const std::string text = ledger_json(ledger);
  EXPECT_EQ(text, ledger_json(ledger));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["error"], "output");
  EXPECT_EQ(json["methods"].size(), 4U);
  ASSERT_EQ(json["layers"].size(), 2U);
  const auto& first = json["layers"][0];
  EXPECT_EQ(first["layer"], 7);
  EXPECT_EQ(first["samples"], (std::vector<std::uint64_t>{std::uint64_t{1} << 40, 0}));
  EXPECT_EQ(first["gate_proj"]["method"], (std::vector<int>{3, 0}));
  EXPECT_EQ(first["up_proj"]["before"], (std::vector<double>{0.1235, 1.235e4}));
  EXPECT_EQ(first["up_proj"]["after"][0], 1.235e-7);
  EXPECT_TRUE(first["up_proj"]["after"][1].is_null());
  EXPECT_FALSE(first["up_proj"].contains("weight_error"));
  EXPECT_EQ(first["down_proj"]["weight_error"], std::vector<int>{1});
  layer.samples.clear();
  ledger.error = QuantError::kWeight;
  ledger.layers = {layer};
  const auto weight = nlohmann::json::parse(ledger_json(ledger));
  EXPECT_EQ(weight["error"], "weight");
  EXPECT_FALSE(weight["layers"][0].contains("samples"));
  const auto back = read(ledger_json(ledger));
  ASSERT_TRUE(back.has_value() && back->layers.size() == 1);
  EXPECT_TRUE(std::isnan(back->layers[0].of(Projection::kUp).after[1]));
}

TEST(QualityLedger, PassesOverLayersThatAreNotAsTheyShouldBe) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {R"("layer": 0)", R"("layer": "0")"},
           {R"("layer": 0)", R"("layer": 4294967296)"},
           {R"("layer": 0)", R"("layer": [0])"},
           {R"("samples": [100, 0, 7])", R"("samples": [100, 0])"},
           {R"("samples": [100, 0, 7])", R"("samples": [100, 0, -7])"},
           {R"("samples": [100, 0, 7])", R"("samples": [100, 0, 7, null])"},
           {R"("method": [3, 2, 3])", R"("method": [3, 2, 4])"},
           {R"("method": [3, 2, 3])", R"("method": [3, 2, 256])"},
           {R"("method": [3, 2, 3])", R"("method": [3, 2, 1.5])"},
           {R"("before": [0.5, 0.4, 0.3])", R"("before": [0.5, 0.4])"},
           {R"("before": [0.5, 0.4, 0.3])", R"("before": [0.5, 0.4, -0.3])"},
           {R"("before": [0.5, 0.4, 0.3])", R"("before": [0.5, 0.4, 1e39])"},
           {R"("before": [0.5, 0.4, 0.3])", R"("before": [0.5, 0.4, "0.3"])"},
           {R"("before": [0.5, 0.4, 0.3])", R"("before": [0.5, 0.4, 0.3, {"x": 1}])"},
           {R"("before": [0.5, 0.4, 0.3])", R"("before": [0.5, [0.4], 0.3])"},
           {R"("before": [0.5, 0.4, 0.3])", R"("before": 0.5)"},
           {R"("weight_error": [1])", R"("weight_error": [3])"},
           {R"("weight_error": [1])", R"("weight_error": [1, 1])"},
           {R"("weight_error": [1])", R"("weight_error": [true])"}}) {
    const auto ledger = read(with(from, to));
    ASSERT_TRUE(ledger.has_value()) << to;
    ASSERT_EQ(ledger->layers.size(), 1U) << to;
    EXPECT_EQ(ledger->layers[0].layer, 1U) << to;
  }
}

TEST(QualityLedger, TakesMoreKeysThanItKnows) {
  const auto ledger = read(with(
      R"("layer": 0,)",
      R"("layer": 0, "seconds": 1.5, "more": {"samples": [1], "gate_proj": {"after": [9]}},)"));
  ASSERT_TRUE(ledger.has_value());
  ASSERT_EQ(ledger->layers.size(), 2U);
  EXPECT_EQ(ledger->layers[0].samples.size(), 3U);
}

TEST(QualityLedger, IsNoneWhenItIsSomethingElse) {
  for (const char* text :
       {"1", "null", "true", "\"output\"", "1.5", "[]", "{}", R"([{"error": "output"}])",
        R"({"error": "output", "layers": []})", R"({"error": "other", "methods": ["rtn"]})",
        R"({"error": ["output"], "methods": ["rtn"]})", R"({"error": "output", "methods": "rtn"})",
        R"({"x": {"error": "output", "methods": ["rtn"]}})"}) {
    EXPECT_FALSE(read(text).has_value()) << text;
  }
  const auto empty =
      read(R"({"error": "weight", "methods": ["rtn"], "layers": {"[]": {"layer": 0}}})");
  ASSERT_TRUE(empty.has_value());
  EXPECT_TRUE(empty->layers.empty());
}

TEST(QualitySummary, CountsMeansAndRanksByHand) {
  const auto ledger = read(kLedger);
  ASSERT_TRUE(ledger.has_value());
  const QualitySummary q = summarize_quality(*ledger, pack_of(2, 3), 4);
  ASSERT_EQ(q.methods.size(), 3U);
  EXPECT_EQ(q.methods[0].method, "rtn");
  EXPECT_EQ(q.methods[0].projections, 1U);
  EXPECT_EQ(q.methods[1].method, "grid");
  EXPECT_EQ(q.methods[1].projections, 4U);
  EXPECT_EQ(q.methods[2].projections, 13U);
  EXPECT_TRUE(q.has_samples);
  EXPECT_EQ(q.samples_min, 0U);
  EXPECT_EQ(q.samples_median, 63.5);  // 0 7 63 64 100 200
  EXPECT_EQ(q.samples_max, 200U);
  EXPECT_EQ(q.starved_experts, 3U);
  EXPECT_EQ(q.unseen_experts, 1U);
  // Expert 1 of layer 0 has weight errors, which do not mix with the others.
  EXPECT_EQ(q.projections[0].matrices, 5U);
  EXPECT_NEAR(q.projections[0].before, (0.5 + 0.3 + 1.5) / 5, 1e-7);
  EXPECT_NEAR(q.projections[0].after, (0.1 + 0.2 + 0.9) / 5, 1e-7);
  EXPECT_EQ(q.weight_error.matrices, 3U);
  EXPECT_NEAR(q.weight_error.before, 1.0 / 3, 1e-7);
  ASSERT_EQ(q.worst.size(), 4U);
  EXPECT_EQ(q.worst[0].after, 0.9F);
  EXPECT_EQ(q.worst[0].layer, 1U);
  EXPECT_EQ(q.worst[0].expert, 0U);
  EXPECT_EQ(q.worst[0].projection, Projection::kDown);
  EXPECT_EQ(q.worst[0].method, "rtn");
  EXPECT_EQ(q.worst[0].format, "q2 g32");
  EXPECT_EQ(q.worst[0].samples, 64U);
  EXPECT_EQ(q.worst[0].error, QuantError::kOutput);
  EXPECT_EQ(q.worst[1].after, 0.6F);
  EXPECT_EQ(q.worst[1].error, QuantError::kWeight);
  EXPECT_EQ(q.worst[2].after, 0.4F);
  EXPECT_EQ(q.worst[3].after, 0.3F);
  EXPECT_EQ(q.worst[3].expert, 0U);  // the first of three equals
  EXPECT_EQ(summarize_quality(*ledger, pack_of(2, 3), 1000).worst.size(), 18U);
}

TEST(QualitySummary, LeavesOutWhatThePackDoesNotHave) {
  const auto ledger = read(kLedger);
  ASSERT_TRUE(ledger.has_value());
  EXPECT_EQ(summarize_quality(*ledger, pack_of(1, 3), 99).worst.size(), 9U);
  EXPECT_TRUE(summarize_quality(*ledger, pack_of(2, 4), 99).worst.empty());
  QualityLedger twice = *ledger;
  twice.layers[1].layer = 0;
  EXPECT_EQ(summarize_quality(twice, pack_of(2, 3), 99).worst.size(), 9U);
}

}  // namespace
}  // namespace moepack::quality_ledger_test
