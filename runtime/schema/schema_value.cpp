#include "runtime/schema/schema_value.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace moepack {
namespace {

static_assert(std::numeric_limits<long double>::digits >= 64);

std::string compact(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Whole numbers are written as integers where a parser reads them as such.
std::string number_text(const OrderedJson& number) {
  const long double value = number_of(number);
  if (value != std::floor(value)) return compact(number);
  if (value >= 0 && value <= static_cast<long double>(std::numeric_limits<std::uint64_t>::max())) {
    return std::to_string(static_cast<std::uint64_t>(value));
  }
  if (value < 0 && value >= static_cast<long double>(std::numeric_limits<std::int64_t>::min())) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return compact(number);
}

void append_canonical(const OrderedJson& value, std::string& out) {
  if (value.is_number()) {
    out += number_text(value);
  } else if (value.is_array()) {
    out += '[';
    for (const OrderedJson& item : value) {
      append_canonical(item, out);
      out += ',';
    }
    out += ']';
  } else if (value.is_object()) {
    std::vector<std::pair<std::string_view, const OrderedJson*>> members;
    for (const auto& [key, item] : value.get_ref<const OrderedJson::object_t&>()) {
      members.emplace_back(key, &item);
    }
    std::sort(members.begin(), members.end());
    out += '{';
    for (const auto& [key, item] : members) {
      out += compact(OrderedJson(key)) + ':';
      append_canonical(*item, out);
      out += ',';
    }
    out += '}';
  } else {
    out += compact(value);
  }
}

}  // namespace

std::string canonical_text(const OrderedJson& value) {
  std::string text;
  append_canonical(value, text);
  return text;
}

bool is_of_type(const OrderedJson& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
  }
  return type == "any" || (type == "null" && value.is_null()) ||
         (type == "boolean" && value.is_boolean()) || (type == "string" && value.is_string()) ||
         (type == "number" && value.is_number()) || (type == "object" && value.is_object()) ||
         (type == "array" && value.is_array());
}

long double number_of(const OrderedJson& value) {
  if (value.is_number_unsigned()) return static_cast<long double>(value.get<std::uint64_t>());
  if (value.is_number_integer()) return static_cast<long double>(value.get<std::int64_t>());
  return static_cast<long double>(value.get<double>());
}

}  // namespace moepack
