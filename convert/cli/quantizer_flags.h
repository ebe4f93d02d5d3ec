// Options of the commands that quantize. Descriptions that are passed in differ between them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace moepack::cli {

// The widths that formats have.
CLI::Validator known_widths();

// Adds --from, for commands that take weights as moepack quantize does.
void add_from(CLI::App& command, std::string& from);
// Adds --method; `method` holds the default.
void add_method(CLI::App& command, std::string& method, const std::string& description);
// Adds --group-size.
CLI::Option* add_group_size(CLI::App& command, std::uint32_t& group_size,
                            const std::string& description);

}  // namespace moepack::cli
