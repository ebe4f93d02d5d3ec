#include "tests/runtime/constrain/constrain_support.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <regex>

#include "formats/base/utf8.h"

namespace moepack::test {
namespace {

std::size_t characters_of(const std::string& text) {
  std::size_t count = 0;
  for (const char* at = text.data(); at < text.data() + text.size(); ++count) next_character(&at);
  return count;
}

bool is_type(const OrderedJson& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  }
  return (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
         (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null());
}

const OrderedJson& referred(const OrderedJson& root, const std::string& reference) {
  std::string pointer = reference.substr(1);
  for (std::size_t at = 0; (at = pointer.find("%20")) != std::string::npos;) {
    pointer.replace(at, 3, " ");
  }
  return root.at(OrderedJson::json_pointer(pointer));
}

bool is_valid_number(const OrderedJson& s, double value) {
  const auto bound = [&](const char* key, auto holds) {
    return !s.contains(key) || holds(value, s[key].get<double>());
  };
  return bound("minimum", std::greater_equal<>()) && bound("maximum", std::less_equal<>()) &&
         bound("exclusiveMinimum", std::greater<>()) && bound("exclusiveMaximum", std::less<>());
}

bool is_valid_array(const OrderedJson& root, const OrderedJson& s, const OrderedJson& value) {
  if (value.size() < s.value("minItems", std::size_t{0})) return false;
  if (s.contains("maxItems") && value.size() > s["maxItems"].get<std::size_t>()) return false;
  const OrderedJson prefix = s.value("prefixItems", OrderedJson::array());
  for (std::size_t i = 0; i < value.size(); ++i) {
    const OrderedJson of_item = i < prefix.size() ? prefix[i] : s.value("items", OrderedJson(true));
    if (!is_valid_json(root, of_item, value[i])) return false;
  }
  return true;
}

bool is_valid_object(const OrderedJson& root, const OrderedJson& s, const OrderedJson& value) {
  const OrderedJson named = s.value("properties", OrderedJson::object());
  for (const auto& [key, item] : value.items()) {
    const OrderedJson of_item =
        named.contains(key) ? named[key] : s.value("additionalProperties", OrderedJson(true));
    if (!is_valid_json(root, of_item, item)) return false;
  }
  for (const OrderedJson& key : s.value("required", OrderedJson::array())) {
    if (!value.contains(key.get<std::string>())) return false;
  }
  return true;
}

bool is_valid_string(const OrderedJson& s, const std::string& text) {
  const std::size_t count = characters_of(text);
  if (count < s.value("minLength", std::size_t{0})) return false;
  return !s.contains("maxLength") || count <= s["maxLength"].get<std::size_t>();
}

}  // namespace

std::shared_ptr<const TokenBytes> make_vocabulary(const std::vector<std::string>& texts,
                                                  const std::vector<std::string>& markers) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  std::vector<TokenBytes::Token> tokens;
  for (std::size_t i = 0; i < 256; ++i) tokens.push_back({std::string_view(bytes).substr(i, 1)});
  tokens.push_back({"<|im_end|>", true});
  for (const std::string& text : texts) tokens.push_back({text});
  for (const std::string& text : markers) tokens.push_back({text, true});
  const std::int32_t ends[] = {kEndId};
  return std::make_shared<const TokenBytes>(tokens, ends);
}

std::vector<std::string> usual_pieces() {
  return {"{\"",
          "\":",
          "\": ",
          "\",",
          "\", \"",
          "\"}",
          "}",
          "},",
          "},{\"",
          "]",
          "],",
          "[{\"",
          "[[",
          "]]",
          "}]}",
          "true",
          "false",
          "null",
          " tr",
          " \"",
          "\n",
          "\n\n",
          "\n  ",
          "  ",
          "    ",
          ", ",
          ": ",
          "12",
          "100",
          "0.",
          ".5",
          "e-",
          "E",
          "-1",
          "\\n",
          "\\u00",
          "\\u",
          "\\\"",
          "\\\\",
          "\\ud83d",
          "name",
          "city",
          "type",
          "value",
          "ab",
          "abc",
          " the",
          "hello",
          " world",
          "\xC3\xA9",
          "\xE6\x97\xA5",
          "\xE6\x97",
          "\xF0\x9F\x98",
          "\xA5",
          "\"a",
          "a\"",
          "\":\"",
          "\":{\"",
          "\":[",
          "{}",
          "[]",
          "\"\"",
          "x\"y",
          "</",
          "<",
          "para",
          "meter",
          ">\n",
          "\xE6\x9C\xAC\"",
          "\",\"",
          "=",
          "a\nb",
          "true}",
          "1,"};
}

std::vector<std::int32_t> tokenised(const TokenBytes& tokens, std::string_view text,
                                    std::mt19937* random) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < text.size();) {
    std::vector<std::int32_t> fitting;
    std::int32_t marker = -1;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      const std::string_view bytes = tokens.bytes(id);
      if (bytes.empty() || text.compare(at, bytes.size(), bytes) != 0) continue;
      if (tokens.kind(id) == TokenBytes::Kind::kMarker) marker = id;
      if (tokens.kind(id) == TokenBytes::Kind::kText) fitting.push_back(id);
    }
    ids.push_back(marker >= 0 ? marker
                              : fitting[random != nullptr ? (*random)() % fitting.size() : 0]);
    at += tokens.bytes(ids.back()).size();
  }
  return ids;
}

bool accepts(const std::shared_ptr<const Grammar>& grammar,
             const std::shared_ptr<const TokenBytes>& tokens, const std::vector<std::int32_t>& ids,
             const std::string& starts_after) {
  const auto filter = make_constraint(grammar, tokens, starts_after);
  for (const std::int32_t id : ids) {
    if (!filter->allows(id)) return false;
    filter->accept(id);
  }
  return filter->allows(kEndId);
}

bool accepts_text(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  static const std::shared_ptr<const TokenBytes> kBytes = make_vocabulary({});
  return accepts(grammar, kBytes, tokenised(*kBytes, text, nullptr));
}

Walk random_walk(TokenFilter& filter, const TokenBytes& tokens, std::mt19937& random,
                 std::size_t limit) {
  Walk walk;
  std::vector<float> logits(tokens.size());
  for (std::size_t step = 0; step < limit; ++step) {
    std::fill(logits.begin(), logits.end(), 0.0F);
    filter.mask(logits);
    std::vector<std::int32_t> allowed, closing;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (std::isinf(logits[i])) continue;
      const auto id = static_cast<std::int32_t>(i);
      allowed.push_back(id);
      const char first = tokens.bytes(id).empty() ? ' ' : tokens.bytes(id)[0];
      if (first == '"' || first == '}' || first == ']' || id == kEndId) closing.push_back(id);
    }
    if (allowed.empty()) return walk;
    const bool closes = !closing.empty() && random() % 60 < std::min<std::size_t>(step, 50);
    const auto& from = closes ? closing : allowed;
    const std::int32_t id = from[random() % from.size()];
    filter.accept(id);
    if (id == kEndId) {
      walk.has_ended = true;
      return walk;
    }
    walk.text += tokens.bytes(id);
  }
  return walk;
}

bool is_valid_json(const OrderedJson& root, const OrderedJson& s, const OrderedJson& value) {
  if (s.is_boolean()) return s.get<bool>();
  const auto holds = [&](const OrderedJson& part) { return is_valid_json(root, part, value); };
  if (s.contains("$ref") && !holds(referred(root, s["$ref"].get<std::string>()))) return false;
  if (s.contains("allOf") && !std::all_of(s["allOf"].begin(), s["allOf"].end(), holds)) {
    return false;
  }
  if (s.contains("anyOf") && !std::any_of(s["anyOf"].begin(), s["anyOf"].end(), holds)) {
    return false;
  }
  if (s.contains("oneOf") && std::count_if(s["oneOf"].begin(), s["oneOf"].end(), holds) != 1) {
    return false;
  }
  if (s.contains("const") && s["const"] != value) return false;
  if (s.contains("enum") &&
      std::find(s["enum"].begin(), s["enum"].end(), value) == s["enum"].end()) {
    return false;
  }
  if (s.contains("type")) {
    const OrderedJson types = s["type"].is_array() ? s["type"] : OrderedJson::array({s["type"]});
    if (std::none_of(types.begin(), types.end(), [&](const OrderedJson& type) {
          return is_type(value, type.get<std::string>());
        })) {
      return false;
    }
  }
  if (value.is_number()) return is_valid_number(s, value.get<double>());
  if (value.is_string()) return is_valid_string(s, value.get<std::string>());
  if (value.is_array()) return is_valid_array(root, s, value);
  return !value.is_object() || is_valid_object(root, s, value);
}

}  // namespace moepack::test
