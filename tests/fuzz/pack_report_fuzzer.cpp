#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "convert/report/pack_report.h"
#include "convert/report/quality_summary.h"

namespace {

// Layers of three experts, all matrices bf16.
moepack::PackManifest small_pack() {
  moepack::PackManifest pack;
  pack.num_layers = 2;
  pack.num_experts = 3;
  const moepack::WeightFormat bf16;
  pack.layouts.push_back(*moepack::make_expert_layout(32, 32, {bf16, bf16, bf16}));
  pack.layers.resize(pack.num_layers);
  for (moepack::LayerEntry& layer : pack.layers) layer.experts.resize(pack.num_experts);
  return pack;
}

// What was understood can be written and is then understood as before.
void require_round_trip(const moepack::QualityLedger& ledger) {
  const std::string text = moepack::ledger_json(ledger);
  const auto again = moepack::parse_pack_report("{\"report\": {\"ledger\": " + text + "}}", "fuzz");
  if (!again.is_ok()) std::abort();
  if (!again.value().ledger.has_value()) {
    if (!ledger.methods.empty()) std::abort();
    return;
  }
  if (moepack::ledger_json(*again.value().ledger) != text) std::abort();
}

}  // namespace

// Anything may stand in a report; the reader takes what it knows and never fails on the rest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto report = moepack::parse_pack_report(text, "fuzz");
  if (!report.is_ok() || !report.value().ledger.has_value()) return 0;
  const moepack::PackManifest pack = small_pack();
  const auto summary = moepack::summarize_quality(*report.value().ledger, pack, 5);
  if (summary.worst.size() > 5) std::abort();
  require_round_trip(*report.value().ledger);
  return 0;
}
