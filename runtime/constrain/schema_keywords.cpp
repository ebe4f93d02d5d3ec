#include "runtime/constrain/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/constrain/string_format.h"

namespace moepack {
namespace {

// Longer strings and arrays than these are not told from endless ones.
constexpr double kMaxCount = 1e9;

}  // namespace

Result<std::uint32_t> count_keyword(const OrderedJson& schema, const char* key,
                                    std::uint32_t absent) {
  const auto found = schema.find(key);
  if (found == schema.end() || found->is_null()) return absent;
  const double value = found->is_number() ? found->get<double>() : -1.0;
  if (!(value >= 0.0) || value != std::floor(value)) {
    return schema_error(key, "must be a whole number from 0");
  }
  return value > kMaxCount ? std::max(absent, static_cast<std::uint32_t>(kMaxCount))
                           : static_cast<std::uint32_t>(value);
}

Result<std::optional<StringPattern>> pattern_keyword(const OrderedJson& schema,
                                                     const SchemaFlattener::Listener& warn) {
  const auto format = schema.find("format");
  const bool has_format = format != schema.end() && format->is_string();
  const std::string name = has_format ? format->get<std::string>() : std::string();
  const auto known = format_pattern(name);
  if (const auto text = schema.find("pattern"); text != schema.end()) {
    if (!text->is_string()) return schema_error("pattern", "must be a text");
    auto pattern = StringPattern::parse(text->get<std::string>());
    if (pattern.has_value()) {
      if (has_format) warn("format", "is ignored beside a \"pattern\"");
      return pattern;
    }
    warn("pattern", "that is not simple is ignored");
  }
  if (known.has_value()) return StringPattern::parse(*known);
  if (has_format) warn("format", "is ignored where it is \"" + printable(name, 40) + "\"");
  return std::optional<StringPattern>();
}

}  // namespace moepack
