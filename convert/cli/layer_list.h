// Lists of layers on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/status.h"

namespace moepack::cli {

// "all" (an empty list), or numbers and ranges: "0-4,7". Sorted, each once. kInvalidArgument for
// anything else, and for layers beyond 65,535.
Result<std::vector<std::uint32_t>> parse_layers(const std::string& text);

// Adds --layers, for parse_layers. `verb`: what the command does with layers, "Convert".
void add_layers(CLI::App& command, std::string& layers, const std::string& verb);

}  // namespace moepack::cli
