// The ranges of numeric options. A text that is no number of the range is refused before anything
// is done; the message names the option, the text and the range.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace moepack::cli {

// Takes decimal digits, after a minus sign where `least` is negative. Both ends are allowed.
CLI::Validator whole_number(std::int64_t least, std::uint64_t most);
// Takes a decimal number. Both ends are allowed, and NaN is in no range.
CLI::Validator real_number(double least, double most);

// Tokens of a text, windows, rows: more than anybody has, and far from where arithmetic ends.
constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 40;
// MiB of memory: 16 TiB.
constexpr std::uint64_t kMaxMebibytes = std::uint64_t{1} << 24;

}  // namespace moepack::cli
