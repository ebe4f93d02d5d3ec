// What "format" of a schema says of a string.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moepack {

// A pattern (StringPattern) whose texts have the format; nullopt for formats that are not held to.
// date, time and date-time as in RFC 3339, days by month and year, without leap seconds; uuid as in
// RFC 9562; ipv4; email with a local part without quotes and a domain of names.
std::optional<std::string> format_pattern(std::string_view format);

}  // namespace moepack
