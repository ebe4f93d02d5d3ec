// Lists of experts in JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/json_fields.h"

namespace moepack {

// `list`, member `key` of `owner`, as distinct ids below `num_experts`, in its order; anything else
// is kCorrupt with the place.
Result<std::vector<std::uint32_t>> parse_expert_ids(const JsonFields& owner, const std::string& key,
                                                    const nlohmann::json& list,
                                                    std::uint32_t num_experts);

// kCorrupt: member `key` of `owner` names a layer or an expert (`what`) that a model with `has` of
// them lacks.
Status beyond_model(const JsonFields& owner, std::string_view key, std::string_view id,
                    const char* what, std::uint32_t has);

}  // namespace moepack
