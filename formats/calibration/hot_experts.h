// Lists of the experts of each layer that deserve better: flash-moe's hot_experts.json, and how to
// choose one from a profile.
//
//   {"threshold": 0.8, "num_layers": L, "num_experts": E, "total_hot": n, "total_cold": n,
//    "hot_experts": {"0": [ids], …}}
//
// is what profile_experts.py writes (ids by falling use), and what moepack writes. The lists of
// sensitivity_analysis.py ("threshold": null, ids ascending, keys about sizes) and the made-up ones
// ("heuristic": true: the first experts of every layer, whatever they do) are read too; keys that
// say nothing about the lists are passed over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/expert_profile.h"

namespace moepack {

constexpr const char* kHotExpertsName = "hot_experts.json";

struct HotExperts {
  ExpertShape shape;
  std::optional<double> threshold;  // share of a layer's uses that its list covers; absent: unknown
  bool heuristic = false;           // the file says that it was not made from any measurement
  std::vector<std::vector<std::uint32_t>> layers;  // [num_layers]: distinct ids, as the file orders

  std::uint64_t total_hot() const;
};

// The fewest experts, most used first and equally used ones by id, whose counts make up at least
// `threshold` of the layer's uses. The share is compared as a double, as profile_experts.py does
// it. A layer without uses or counts gives no experts.
std::vector<std::uint32_t> experts_covering(const LayerProfile& layer, double threshold);
// experts_covering() of every layer. kInvalidArgument unless 0 < threshold <= 1; kUnsupported for
// ranks without counts.
Result<HotExperts> select_hot_by_coverage(const ExpertProfile& profile, double threshold);
// The `count` most used experts of each layer, or fewer where fewer were used. Ranks suffice.
// kInvalidArgument unless 1 <= count <= num_experts.
Result<HotExperts> select_hot_by_number(const ExpertProfile& profile, std::uint32_t count);

// The list as text in the form of profile_experts.py, one line a layer. It depends on the list
// alone.
std::string hot_experts_text(const HotExperts& hot);
// Parses a list (fuzz target). `expected` is the model's shape: what the file states must agree
// with it, and what the file does not state is taken from it; a number that neither tells is
// kCorrupt. Layers without an entry have no hot experts. Ids and layers beyond the model, ids given
// twice, and totals that do not agree with the lists are refused with file and key.
Result<HotExperts> parse_hot_experts(std::string_view text, const std::string& file,
                                     const ExpertShape& expected = {});
Result<HotExperts> read_hot_experts(const std::filesystem::path& path,
                                    const ExpertShape& expected = {});

}  // namespace moepack
