// Free space in reports; the system does not always tell it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace moepack::cli {

// "12.3 GB", or "an unknown amount".
std::string free_space_text(std::optional<std::uint64_t> bytes);
// The number, or null.
nlohmann::ordered_json free_space_json(std::optional<std::uint64_t> bytes);

}  // namespace moepack::cli
