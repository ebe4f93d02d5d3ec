#include "runtime/constrain/schema_limits.h"

#include <string>
#include <vector>

namespace moepack {

Status check_schema_size(const OrderedJson& schema) {
  constexpr std::size_t kValueBytes = 4;  // of a value that is no text
  std::size_t bytes = 0;
  std::vector<const OrderedJson*> open{&schema};
  while (!open.empty()) {
    const OrderedJson& value = *open.back();
    open.pop_back();
    bytes += value.is_string() ? value.get_ref<const std::string&>().size() : kValueBytes;
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
