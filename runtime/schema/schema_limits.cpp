#include "runtime/schema/schema_limits.h"

#include <string>
#include <vector>

namespace moepack {

namespace {

constexpr std::size_t kSchemaValueBytes = 4;  // of a value that is no text

}  // namespace

std::size_t schema_bytes(const OrderedJson& schema) {
  std::size_t bytes = 0;
  std::vector<const OrderedJson*> open{&schema};
  while (!open.empty()) {
    const OrderedJson& value = *open.back();
    open.pop_back();
    bytes += kSchemaValueBytes;
    if (value.is_string()) bytes += value.get_ref<const std::string&>().size();
    if (value.is_array()) {
      for (const OrderedJson& item : value) open.push_back(&item);
    }
    if (!value.is_object()) continue;
    for (const auto& [name, item] : value.items()) {
      bytes += name.size();
      open.push_back(&item);
    }
  }
  return bytes;
}

Status too_large_schema() {
  return invalid_argument("the schema is too large with all that it refers to and combines",
                          "leave parts of it out");
}

Status check_schema_size(const OrderedJson& schema) {
  std::size_t bytes = 0;
  std::vector<const OrderedJson*> open{&schema};
  while (!open.empty()) {
    const OrderedJson& value = *open.back();
    open.pop_back();
    bytes += value.is_string() ? value.get_ref<const std::string&>().size() : kSchemaValueBytes;
    if (bytes > kMostSchemaBytes) {
      return invalid_argument("the schema has more than " + std::to_string(kMostSchemaBytes) +
                                  " bytes of names and values",
                              "give a smaller one");
    }
    if (value.is_array()) {
      for (const OrderedJson& item : value) open.push_back(&item);
    }
    if (!value.is_object()) continue;
    for (const auto& [name, item] : value.items()) {
      if (name.size() > kMostSchemaName) {
        return invalid_argument(
            "the schema has a name of " + std::to_string(name.size()) + " bytes",
            "at most " + std::to_string(kMostSchemaName) + " are taken");
      }
      bytes += name.size();
      open.push_back(&item);
    }
  }
  return Status::ok();
}

}  // namespace moepack
