#include "runtime/serve/body_fields.h"

#include <cmath>
#include <utility>

#include "formats/base/status.h"

namespace moepack {
namespace {

// 1e15 is exact in both kinds of numbers.
constexpr double kMostExactWhole = 9007199254740992.0;

std::string bound_text(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::optional<std::int64_t> whole_value(const OrderedJson& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return INT64_MAX;
    return static_cast<std::int64_t>(value);
  }
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (!json.is_number_float()) return std::nullopt;
  const auto value = json.get<double>();  // 10.0 is written by some clients
  if (std::floor(value) != value || std::abs(value) > kMostExactWhole) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace

BodyFields::BodyFields(const OrderedJson& object, std::string place, RequestFault& fault)
    : object_(object), place_(std::move(place)), fault_(fault) {}

const OrderedJson* BodyFields::find(std::string_view name) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void BodyFields::fail(std::string_view name, std::string message) const {
  fault_.set(invalid_request(std::move(message), place_of(name)));
}

std::optional<bool> BodyFields::flag(std::string_view name) const {
  const OrderedJson* found = find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>();
  fail(name, place_of(name) + " must be true or false");
  return std::nullopt;
}

std::optional<double> BodyFields::number(std::string_view name, double low, double high) const {
  const OrderedJson* found = find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_number()) {
    const auto value = found->get<double>();
    if (value >= low && value <= high) return value;
  }
  fail(name,
       place_of(name) + " must be a number from " + bound_text(low) + " to " + bound_text(high));
  return std::nullopt;
}

std::optional<std::int64_t> BodyFields::whole(std::string_view name, std::int64_t low,
                                              std::int64_t high) const {
  const OrderedJson* found = find(name);
  if (found == nullptr) return std::nullopt;
  const std::optional<std::int64_t> value = whole_value(*found);
  if (value.has_value() && *value >= low && *value <= high) return value;
  fail(name, place_of(name) + " must be a whole number from " + std::to_string(low) + " to " +
                 std::to_string(high));
  return std::nullopt;
}

std::optional<std::string> BodyFields::text(std::string_view name) const {
  const OrderedJson* found = find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  fail(name, place_of(name) + " must be a string");
  return std::nullopt;
}

const OrderedJson* BodyFields::object(std::string_view name) const {
  const OrderedJson* found = find(name);
  if (found == nullptr || found->is_object()) return found;
  fail(name, place_of(name) + " must be an object");
  return nullptr;
}

const OrderedJson* BodyFields::array(std::string_view name) const {
  const OrderedJson* found = find(name);
  if (found == nullptr || found->is_array()) return found;
  fail(name, place_of(name) + " must be an array");
  return nullptr;
}

std::string element_place(std::string_view array, std::size_t index) {
  return std::string(array) + "[" + std::to_string(index) + "]";
}

}  // namespace moepack
