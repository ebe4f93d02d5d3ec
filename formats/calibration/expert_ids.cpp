#include "formats/calibration/expert_ids.h"

#include <nlohmann/json.hpp>

namespace moepack {

Status beyond_model(const JsonFields& owner, std::string_view key, std::string_view id,
                    const char* what, std::uint32_t has) {
  return owner.error(printable(key, 64),
                     "names " + std::string(what) + " " + printable(id, 64) + ", the model has " +
                         std::to_string(has),
                     "the file is of another model");
}

Result<std::vector<std::uint32_t>> parse_expert_ids(const JsonFields& owner, const std::string& key,
                                                    const nlohmann::json& list,
                                                    std::uint32_t num_experts) {
  if (!list.is_array()) return owner.error(key, "must be a list of experts");
  std::vector<std::uint32_t> ids;
  std::vector<bool> seen(num_experts);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = key + "[" + std::to_string(i) + "]";
    if (!list[i].is_number_unsigned()) return owner.error(place, "must be the number of an expert");
    const auto id = list[i].get<std::uint64_t>();
    if (id >= num_experts) {
      return beyond_model(owner, place, std::to_string(id), "expert", num_experts);
    }
    if (seen[id]) return owner.error(place, "repeats expert " + std::to_string(id));
    seen[id] = true;
    ids.push_back(static_cast<std::uint32_t>(id));
  }
  return ids;
}

}  // namespace moepack
