// One more expert pack for a model directory, in affine formats chosen by a quantizer.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "convert/quantize/expert_bits.h"
#include "convert/report/quality_ledger.h"
#include "convert/report/quality_summary.h"
#include "formats/base/status.h"
#include "quant/quantize_matrix.h"

namespace moepack {

// All of a layer's projections in the same width.
struct LayerBits {
  std::uint32_t layer = 0;
  std::uint32_t bits = 4;
};

struct QuantizeOptions {
  std::filesystem::path model;
  std::string from;  // as ExpertWeights::open takes it
  QuantMethod method = QuantMethod::kGptq;
  std::uint32_t gate_up_bits = 4;  // 2, 3, 4, 5, 6 or 8
  std::uint32_t down_bits = 4;
  std::vector<LayerBits> layer_bits;  // where they differ; the last of a layer counts
  // Of every matrix, instead of the three above; records are then taken over from packs of the
  // model that were quantized in the same way.
  std::optional<ExpertBits> expert_bits;
  std::vector<std::string> reuse;  // with expert_bits: other packs to take records from
  std::string hot_experts;        // with expert_bits: text of the pack's hot_experts.json; "": none
  std::uint32_t group_size = 64;  // 32, 64 or 128
  RowOrder row_order = RowOrder::kRows;
  std::optional<std::filesystem::path> calibration;
  std::string name;  // of the pack: packed_experts_NAME
  unsigned threads = 0;
  std::vector<std::uint32_t> layers;  // only these now; empty: all that are left
  bool restart = false;               // drop an interrupted quantization with other options
};

struct QuantizeReport {
  std::string pack;         // directory's name
  std::string source;       // what it starts from, for people
  std::string calibration;  // "" without
  std::string formats;      // "q2 g64, q3 g64"
  double bits_per_weight = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint64_t all_experts = 0;     // of all layers; some may have none
  std::uint64_t records_reused = 0;  // taken over from other packs
  std::uint64_t expert_size = 0;     // of the usual record
  std::uint64_t pack_bytes = 0;
  std::uint64_t needed_bytes = 0;
  std::optional<std::uint64_t> free_bytes;  // nullopt: unknown
  std::uint64_t memory_bytes = 0;           // at most, at once
  std::size_t threads = 0;
  std::vector<std::string> notes;
  // By number of calibration tokens, fewest first: "layer 3 expert 7: 12 tokens".
  std::vector<std::string> starved;
  QualityLedger ledger;
  QualitySummary quality;  // of the ledger
  std::size_t layers_resumed = 0;
  std::size_t layers_left = 0;
  bool finished = false;
  double seconds = 0;
  double estimated_seconds = 0;  // of a dry run
};

// Checks everything and writes nothing. Quantizing some matrices of the model's shape tells the
// time.
Result<QuantizeReport> plan_quantization(const QuantizeOptions& options);

// Writes the pack layer by layer; an interrupted one is continued by the same call. Memory: one
// layer's recorded inputs, and per thread one expert with its Hessian.
Result<QuantizeReport> quantize_model(const QuantizeOptions& options,
                                      const ProgressCallback& progress);

}  // namespace moepack
