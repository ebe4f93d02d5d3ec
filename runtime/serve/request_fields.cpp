#include "runtime/serve/request_fields.h"

#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

namespace moepack {

RequestFields::RequestFields(const OrderedJson& object, std::string path, RequestProblem& problem)
    : object_(object), path_(std::move(path)), problem_(problem) {}

const OrderedJson* RequestFields::find(std::string_view key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  if (found == object_.end() || found->is_null()) return nullptr;
  return &*found;
}

const OrderedJson* RequestFields::object(std::string_view key) const {
  const OrderedJson* found = find(key);
  if (found == nullptr || found->is_object()) return found;
  refuse(key, "must be an object");
  return nullptr;
}

const OrderedJson* RequestFields::array(std::string_view key) const {
  const OrderedJson* found = find(key);
  if (found == nullptr || found->is_array()) return found;
  refuse(key, "must be a list");
  return nullptr;
}

std::optional<std::string> RequestFields::text(std::string_view key) const {
  const OrderedJson* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  refuse(key, "must be a text");
  return std::nullopt;
}

std::optional<bool> RequestFields::flag(std::string_view key) const {
  const OrderedJson* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>();
  refuse(key, "must be true or false");
  return std::nullopt;
}

std::optional<double> RequestFields::number(std::string_view key, double low, double high) const {
  const OrderedJson* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number()) {
    const auto value = found->get<double>();
    if (value >= low && value <= high) return value;
  }
  const auto short_text = [](double value) { return OrderedJson(value).dump(); };
  refuse(key, "must be a number from " + short_text(low) + " to " + short_text(high));
  return std::nullopt;
}

std::optional<std::uint64_t> RequestFields::count(std::string_view key) const {
  const std::optional<std::int64_t> value = integer(key);
  if (!value) return std::nullopt;
  if (*value >= 0) return static_cast<std::uint64_t>(*value);
  refuse(key, "must not be negative");
  return std::nullopt;
}

std::optional<std::int64_t> RequestFields::integer(std::string_view key) const {
  const OrderedJson* found = find(key);
  if (found == nullptr) return std::nullopt;
  constexpr auto kHighest = std::numeric_limits<std::int64_t>::max();
  if (found->is_number_unsigned()) {
    const auto value = found->get<std::uint64_t>();
    if (value <= static_cast<std::uint64_t>(kHighest)) return static_cast<std::int64_t>(value);
  } else if (found->is_number_integer()) {
    return found->get<std::int64_t>();
  } else if (found->is_number_float()) {
    // Some clients write whole numbers as 1024.0. A double holds these exactly.
    const auto value = found->get<double>();
    if (value > -1e15 && value < 1e15 &&
        static_cast<double>(static_cast<std::int64_t>(value)) == value) {
      return static_cast<std::int64_t>(value);
    }
  }
  refuse(key, "must be a whole number");
  return std::nullopt;
}

std::string_view RequestFields::text_or_empty(std::string_view key) const {
  const OrderedJson* found = find(key);
  if (found == nullptr || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

std::string RequestFields::path_of(std::string_view key) const {
  if (key.empty()) return path_;
  std::string path = path_;
  if (!path.empty()) path += '.';
  return path.append(key);
}

void RequestFields::refuse(std::string_view key, std::string message) const {
  set_problem(problem_, std::move(message), path_of(key));
}

std::string path_of_element(std::string_view path, std::size_t index) {
  return std::string(path) + "[" + std::to_string(index) + "]";
}

void set_problem(RequestProblem& problem, std::string message, std::string path) {
  if (problem) return;
  problem = invalid_request(std::move(message), std::move(path));
}

}  // namespace moepack
