#include "runtime/jinja/arguments.h"

#include <algorithm>
#include <limits>

namespace moepack::jinja {
namespace {

std::string call_of(std::string_view what) { return std::string(what) + "()"; }

}  // namespace

Bound::Bound(std::string_view what, const Arguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t required)
    : values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    fail(call_of(what) + " takes no more than " + std::to_string(names.size()) + " arguments");
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [key, value] : arguments.keywords) {
    const std::string& name = key->bytes;
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) fail(call_of(what) + " has no argument '" + name + "'");
    const auto i = static_cast<std::size_t>(found - names.begin());
    if (values_[i] != nullptr) fail(call_of(what) + " got the argument '" + name + "' twice");
    values_[i] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      fail(call_of(what) + " misses the argument '" + std::string(*(names.begin() + i)) + "'");
    }
  }
}

Integer Bound::integer(std::size_t i, Integer absent) const {
  if (values_[i] == nullptr) return absent;
  const auto value = values_[i]->index();
  if (!value) fail("'" + type_name(*values_[i]) + "' cannot be taken for an integer");
  return *value;
}

TextPtr Bound::text(std::size_t i, std::string_view absent) const {
  return values_[i] == nullptr ? make_text(absent) : need_text(*values_[i]);
}

void expect_count(std::string_view what, const Arguments& arguments, std::size_t least,
                  std::size_t most) {
  if (!arguments.keywords.empty()) fail(call_of(what) + " takes no keyword arguments");
  const std::size_t count = arguments.positional.size();
  if (count < least || count > most) {
    fail(call_of(what) + " takes " + std::to_string(least) +
         (least == most ? "" : " to " + std::to_string(most)) + " arguments, not " +
         std::to_string(count));
  }
}

std::int64_t need_index(const Value& value) {
  const auto index = value.index();
  if (!index) fail("'" + type_name(value) + "' cannot be taken for an integer");
  constexpr Integer kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::clamp<Integer>(*index, -kMost, kMost));
}

const TextPtr& need_text(const Value& value) {
  const TextPtr* text = value.as<TextPtr>();
  if (text == nullptr) fail("expected a string, not '" + type_name(value) + "'");
  return *text;
}

}  // namespace moepack::jinja
