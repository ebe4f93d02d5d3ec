#include "runtime/schema/schema_reference.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "formats/base/percent.h"

namespace moepack {
namespace {

// A name of a pointer, where "~1" stands for "/" and "~0" for "~".
std::string without_tildes(std::string_view part) {
  std::string name;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const bool is_escape = part[i] == '~' && i + 1 < part.size();
    name += is_escape ? (part[++i] == '1' ? '/' : '~') : part[i];
  }
  return name;
}

const OrderedJson* member_of(const OrderedJson& value, const std::string& name) {
  constexpr std::size_t kMostDigits = 6;
  if (value.is_object()) {
    const auto found = value.find(name);
    return found == value.end() ? nullptr : &*found;
  }
  const bool is_index = !name.empty() && name.size() <= kMostDigits &&
                        name.find_first_not_of("0123456789") == std::string::npos;
  if (!value.is_array() || !is_index || std::stoul(name) >= value.size()) return nullptr;
  return &value[std::stoul(name)];
}

// The name that a schema gives itself; empty: none.
std::string anchor_of(const OrderedJson& schema) {
  const auto text_of = [&](const char* key) {
    const auto found = schema.find(key);
    return found != schema.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (std::string anchor = text_of("$anchor"); !anchor.empty()) return anchor;
  const std::string id = text_of("$id");
  return id.size() > 1 && id.front() == '#' ? id.substr(1) : std::string();
}

bool holds_values(std::string_view key) {
  constexpr std::array<std::string_view, 4> kKeys = {"const", "enum", "default", "examples"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

}  // namespace

const OrderedJson* SchemaReferences::find(std::string_view reference) {
  if (reference.empty() || reference.front() != '#') return nullptr;
  const std::string fragment = percent_decoded(reference.substr(1));
  if (fragment.empty() || fragment.front() == '/') return find_pointer(fragment);
  return find_anchor(fragment);
}

const OrderedJson* SchemaReferences::find_pointer(std::string_view pointer) const {
  const OrderedJson* at = &root_;
  while (at != nullptr && !pointer.empty()) {
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    at = member_of(*at, without_tildes(pointer.substr(1, end - 1)));
    pointer.remove_prefix(end);
  }
  return at;
}

const OrderedJson* SchemaReferences::find_anchor(std::string_view name) {
  if (!anchors_.has_value()) {
    anchors_.emplace();
    std::vector<const OrderedJson*> open{&root_};
    while (!open.empty()) {
      const OrderedJson& value = *open.back();
      open.pop_back();
      if (value.is_object()) {
        if (std::string anchor = anchor_of(value); !anchor.empty()) {
          anchors_->emplace(std::move(anchor), &value);
        }
        for (const auto& [key, item] : value.items()) {
          if (item.is_structured() && !holds_values(key)) open.push_back(&item);
        }
      } else {
        for (const OrderedJson& item : value) {
          if (item.is_structured()) open.push_back(&item);
        }
      }
    }
  }
  const auto found = anchors_->find(name);
  return found == anchors_->end() ? nullptr : found->second;
}

}  // namespace moepack
