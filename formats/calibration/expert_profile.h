// How often each routed expert of a model is used: counts by layer and expert, gathered by
// `moepack profile` or taken from another engine's records (formats/calibration/foreign_profile.h),
// summed over any number of runs.
//
// One JSON file. Schema and an example: docs/profile-format.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "formats/base/status.h"

namespace moepack {

constexpr const char* kExpertProfileFormat = "moepack.profile";
constexpr std::uint32_t kExpertProfileVersion = 1;

// Layers and routed experts of a model; 0: not known.
struct ExpertShape {
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;

  bool is_known() const { return num_layers != 0 && num_experts != 0; }
  bool operator==(const ExpertShape&) const = default;
};
// "60 layers of 512 experts".
std::string to_string(const ExpertShape& shape);

// kCorrupt with `file` unless both numbers are at least 1, and they and their product within the
// limits of formats/base/limits.h.
Status check_expert_shape(const ExpertShape& shape, std::string_view file);

struct LayerProfile {
  // [num_experts]: tokens that chose the expert. All 0: nothing is known about the layer. Empty in
  // a profile of ranks.
  std::vector<std::uint64_t> counts;
  // [num_experts]: over the tokens that chose the expert, sums of its router weight and of the
  // weight's square. Empty where the source does not tell.
  std::vector<double> weight_sums;
  std::vector<double> weight_square_sums;
  // Experts that were used, most used first, where a source tells the order alone. Else empty.
  std::vector<std::uint32_t> ranks;
};

struct ExpertProfile {
  std::string model;                     // base name of the model directory; "": unknown
  std::uint64_t source_fingerprint = 0;  // of the pack's source (PackSource); 0: unknown
  ExpertShape shape;
  std::uint32_t experts_per_token = 0;  // 0: unknown
  // When known, the counts of every layer add up to tokens * experts_per_token. 0: unknown, or not
  // the same for all layers.
  std::uint64_t tokens = 0;
  std::vector<LayerProfile> layers;  // [num_layers]

  // False where the layers have `ranks` alone. All layers are of one kind.
  bool has_counts() const;
  bool has_weights() const;  // of all layers
};

// Uses of a layer: the sum of its counts, which the reader and add_profiles keep within 64 bits.
std::uint64_t layer_uses(const LayerProfile& layer);
// Ids of the experts that were used, most used first and equally used ones by id. A layer of ranks
// gives its ranks as they are.
std::vector<std::uint32_t> used_experts(const LayerProfile& layer);

// The profile as text, which depends on the profile alone; parse_expert_profile gives the same
// values back, bit for bit.
std::string expert_profile_text(const ExpertProfile& profile);
// Parses a profile (fuzz target). Unknown keys, counts that do not add up, and weights without a
// use are refused. `file` names the text in errors.
Result<ExpertProfile> parse_expert_profile(std::string_view text, const std::string& file);
Result<ExpertProfile> parse_expert_profile_tree(const nlohmann::json& json,
                                                const std::string& file);

// The longest text of a profile or a list of experts that is read, in bytes. kMaxModelExperts
// counts of 15 digits with their weights fit into it.
constexpr std::uint64_t kMaxProfileBytes = std::uint64_t{8} << 20;

// kInvalidArgument where `a` and `b` are of models that differ in shape, number of experts per
// token or name, of what is known; names may differ when the source is known to be the same.
Status check_same_model(const ExpertProfile& a, const ExpertProfile& b);
// The counts of both together. Weights remain where both have them, `tokens` where both know it.
// kInvalidArgument: the two are of different models (check_same_model), or a sum is beyond 64 bits;
// kUnsupported: ranks without counts, which cannot be added.
Result<ExpertProfile> add_profiles(const ExpertProfile& a, const ExpertProfile& b);

}  // namespace moepack
