#include "convert/cli/free_space_text.h"

#include "convert/cli/progress.h"

namespace moepack::cli {

std::string free_space_text(std::optional<std::uint64_t> bytes) {
  return bytes.has_value() ? format_bytes(*bytes) : "an unknown amount";
}

nlohmann::ordered_json free_space_json(std::optional<std::uint64_t> bytes) {
  return bytes.has_value() ? nlohmann::ordered_json(*bytes) : nlohmann::ordered_json(nullptr);
}

}  // namespace moepack::cli
