#include "formats/base/json_fields.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <nlohmann/json.hpp>

#include "formats/base/checksum.h"

namespace moepack {

Status json_error(StatusCode code, std::string_view file, std::string_view path,
                  std::string_view what, std::string_view remedy) {
  std::string text;
  if (!path.empty()) text = printable(path) + ": ";
  text += what;
  return make_error(code, Where{.file = file}, text, remedy);
}

std::optional<std::uint32_t> parse_index(std::string_view key, std::uint32_t count) {
  constexpr std::size_t kMaxDigits = 9;
  if (key.empty() || key.size() > kMaxDigits || (key.size() > 1 && key[0] == '0')) {
    return std::nullopt;
  }
  std::uint32_t index = 0;
  for (char c : key) {
    if (c < '0' || c > '9') return std::nullopt;
    index = index * 10 + static_cast<std::uint32_t>(c - '0');
  }
  if (index >= count) return std::nullopt;
  return index;
}

std::string json_quote(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_number(double value) {
  std::array<char, 40> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

Result<JsonFields> JsonFields::of(const nlohmann::json& node, std::string_view file,
                                  std::string path) {
  if (!node.is_object()) {
    return json_error(StatusCode::kCorrupt, file, path, "must be an object");
  }
  return JsonFields(node, file, std::move(path));
}

std::string JsonFields::path_of(std::string_view key) const {
  if (key.empty()) return path_;
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

Status JsonFields::error(std::string_view key, std::string_view what,
                         std::string_view remedy) const {
  return json_error(StatusCode::kCorrupt, file_, path_of(key), what, remedy);
}

const nlohmann::json* JsonFields::find(std::string_view key) const {
  const auto it = node_->find(key);
  return it == node_->end() ? nullptr : &*it;
}

bool JsonFields::has(std::string_view key) const { return find(key) != nullptr; }

Result<const nlohmann::json*> JsonFields::need(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return error(key, "is missing");
  return value;
}

Result<std::uint64_t> JsonFields::number(std::string_view key, std::uint64_t min,
                                         std::uint64_t max) const {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* value, need(key));
  if (!value->is_number_unsigned()) return error(key, "must be a non-negative integer");
  const auto number = value->get<std::uint64_t>();
  if (number < min || number > max) {
    return error(key, "is " + std::to_string(number) + ", must lie in " + std::to_string(min) +
                          " to " + std::to_string(max));
  }
  return number;
}

Result<std::uint32_t> JsonFields::number32(std::string_view key, std::uint32_t min,
                                           std::uint32_t max) const {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t value, number(key, min, max));
  return static_cast<std::uint32_t>(value);
}

Result<std::string> JsonFields::string(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* value, need(key));
  if (!value->is_string()) return error(key, "must be a string");
  return value->get<std::string>();
}

Result<std::uint64_t> JsonFields::checksum(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const std::string text, string(key));
  const auto sum = parse_checksum(text);
  if (!sum.has_value()) return error(key, "must be 16 lower-case hex digits");
  return *sum;
}

Result<JsonFields> JsonFields::object(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* value, need(key));
  return JsonFields::of(*value, file_, path_of(key));
}

Result<const nlohmann::json*> JsonFields::array(std::string_view key) const {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* value, need(key));
  if (!value->is_array()) return error(key, "must be a list");
  return value;
}

Status JsonFields::expect_number(std::string_view key, std::uint64_t expected,
                                 std::string_view why) const {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t value, number(key));
  if (value == expected) return Status::ok();
  return error(key, "is " + std::to_string(value) + ", but " + std::string(why) + " gives " +
                        std::to_string(expected));
}

Status JsonFields::expect_version(std::uint64_t known, std::string_view remedy) const {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t version, number("format_version"));
  if (version == known) return Status::ok();
  return json_error(
      StatusCode::kUnsupported, file_, path_of("format_version"),
      "is " + std::to_string(version) + ", this moepack reads " + std::to_string(known), remedy);
}

Result<bool> JsonFields::is_dense(std::string_view beside) const {
  const nlohmann::json* dense = find("dense");
  if (dense == nullptr) return false;
  MOE_RETURN_IF_ERROR(allow_only({"dense", beside}));
  if (*dense == true) return true;
  return error("dense", "is not true");
}

Status JsonFields::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : node_->items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return json_error(StatusCode::kUnsupported, file_, path_of(key), "is not a known key",
                      "a newer moepack may have written it");
  }
  return Status::ok();
}

}  // namespace moepack
