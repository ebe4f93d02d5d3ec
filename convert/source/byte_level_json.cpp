#include "convert/source/byte_level_json.h"

#include <utility>

namespace moepack {

nlohmann::ordered_json byte_level_json() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", false}};
}

nlohmann::ordered_json byte_level_splits_json(std::span<const std::string_view> patterns) {
  auto steps = nlohmann::ordered_json::array();
  for (const std::string_view pattern : patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(byte_level_json());
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

}  // namespace moepack
