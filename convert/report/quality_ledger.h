// The quality ledger: how well each projection of each expert survived quantization. It stands in
// the `report` of a layout.json, for people and tools; no reader of weights looks at it. Schema and
// an example: docs/pack-format.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/weights/expert_layout.h"

namespace moepack {

// E = quantized minus original weights W, H = sum of x x^T over held-out inputs x.
enum class QuantError : std::uint8_t {
  kOutput,  // sqrt(tr(E H E^T) / tr(W H W^T))
  kWeight,  // sqrt(sum E^2 / sum W^2)
};
// "output", "weight".
const char* quant_error_name(QuantError error);

// One projection of one layer's experts. The three columns are as long as the layer has experts.
// Errors are relative, finite, and 0 where W is zero.
struct ProjectionQuality {
  std::vector<std::uint8_t> method;  // index into QualityLedger::methods: what the pack holds
  std::vector<float> before;         // error of plain rounding (rtn) in the same format
  std::vector<float> after;          // error of what the pack holds
  // Only in an output ledger: experts whose inputs are not known, ascending; their `before` and
  // `after` are weight errors.
  std::vector<std::uint32_t> weight_error;
};

struct LayerQuality {
  std::uint32_t layer = 0;
  std::vector<std::uint64_t> samples;  // [experts] calibration tokens; empty in a weight ledger
  std::array<ProjectionQuality, kProjections> projections;  // by Projection

  // False for records that were taken over from a pack without a ledger, of which nothing is known.
  bool is_known() const { return !projections[0].method.empty(); }
  ProjectionQuality& of(Projection p) { return projections[static_cast<std::size_t>(p)]; }
  const ProjectionQuality& of(Projection p) const {
    return projections[static_cast<std::size_t>(p)];
  }
};

struct QualityLedger {
  QuantError error = QuantError::kWeight;
  std::vector<std::string> methods{"rtn", "clip", "grid", "gptq"};
  std::vector<LayerQuality> layers;  // ascending
};

// The value of report.ledger: one JSON object, one line a column. Deterministic. Numbers have four
// significant digits; one that is not finite is written as null.
std::string ledger_json(const QualityLedger& ledger);

}  // namespace moepack
