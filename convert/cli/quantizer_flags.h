// Options that the commands that quantize share. A description is passed in where it differs
// between them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace moepack::cli {

// Takes the numbers of bits that the affine formats have.
CLI::Validator known_widths();

// Adds --from, for commands that take weights as moepack quantize does.
void add_from(CLI::App& command, std::string& from);
// Adds --method; `method` holds the default.
void add_method(CLI::App& command, std::string& method, const std::string& description);
// Adds --group-size.
CLI::Option* add_group_size(CLI::App& command, std::uint32_t& group_size,
                            const std::string& description);

}  // namespace moepack::cli
