// Options that the commands that quantize share. A description is passed in where it differs
// between them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "convert/cli/given_flags.h"

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
// Refuses --group-size where neither --expert-format nor --resident asks for codes with scales.
Status check_group_size(const GivenFlags& given, const std::string& expert_format,
                        const std::string& resident_format);

}  // namespace moepack::cli
