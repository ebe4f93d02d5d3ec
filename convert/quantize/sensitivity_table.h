// What every expert's matrices lose at every width, and what that does to the predictions: the
// measurements that an allocation of bits is made from. Schema: docs/allocation-format.md.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/calibration.h"
#include "formats/weights/expert_layout.h"

namespace moepack {

constexpr std::uint32_t kSensitivityFormatVersion = 1;

// Of a layer without experts all lists are empty, and the response counts for nothing.
struct LayerSensitivity {
  DivergenceResponse response;
  std::vector<double> share;  // [experts]: of all tokens, those that chose the expert
  // [projection][width][expert]: mean squared error that the matrix adds to the layer's output of a
  // token, summed over hidden units, over all tokens.
  std::array<std::vector<std::vector<double>>, kProjections> error;

  std::size_t experts() const { return share.size(); }
};

struct SensitivityTable {
  std::string model;                     // base name of the model directory
  std::uint64_t source_fingerprint = 0;  // of the weights' source; 0: unknown
  std::uint64_t plan = 0;                // tells apart what it was measured on and how
  std::string method;                    // quantizer's
  std::uint32_t num_layers = 0;
  std::uint32_t expert_layers = 0;  // that have experts
  std::uint32_t num_experts = 0;    // of each of them
  std::uint64_t hidden_size = 0;
  std::uint64_t expert_width = 0;
  std::uint32_t group_size = 0;
  std::uint64_t page_size = 0;
  std::vector<std::uint32_t> bits;  // widths, ascending
  // From layer 0; fewer than num_layers while the measuring is not finished.
  std::vector<LayerSensitivity> layers;

  std::uint64_t all_experts() const { return std::uint64_t{expert_layers} * num_experts; }
  bool is_finished() const { return layers.size() == num_layers; }
};

// The table as text, which depends on the table alone.
std::string sensitivity_text(const SensitivityTable& table);
// Parses such a text (fuzz target); what contradicts itself is refused. `file` names it in errors.
Result<SensitivityTable> parse_sensitivity(std::string_view text, const std::string& file);
Result<SensitivityTable> read_sensitivity(const std::filesystem::path& file);
// Whether `file` begins as such a text does, also one that is damaged further on or of another
// version.
bool begins_as_sensitivity(const std::filesystem::path& file);

// The KL divergence in nats that a mean squared error of `error` in the layer's output gives.
double divergence_of(const DivergenceResponse& response, double error);
// The KL divergence in nats where only a `share` of the tokens have an error, and `error` is its
// mean over all tokens.
double divergence_of(const DivergenceResponse& response, double error, double share);

}  // namespace moepack
