// Lists of layers on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/status.h"

namespace moepack::cli {

// "all" (an empty list), or numbers and ranges: "0-4,7". Sorted, each once. kInvalidArgument for
// anything else, and for layers beyond 65,535.
Result<std::vector<std::uint32_t>> parse_layers(const std::string& text);

}  // namespace moepack::cli
