// What the items of an array must be, place by place.
#pragma once

#include "runtime/schema/ordered_json.h"

namespace moepack {

// Parts of an array's schema; nullptr: it does not have them.
struct ItemSchemas {
  const OrderedJson* places = nullptr;  // a list, unless the schema is wrong
  const OrderedJson* others = nullptr;  // of the items behind those
};

// "prefixItems" and "items", or as draft 7 has it a list of "items" and "additionalItems".
inline ItemSchemas item_schemas(const OrderedJson& schema) {
  const auto part = [&schema](const char* key) {
    const auto found = schema.find(key);
    return found == schema.end() ? nullptr : &*found;
  };
  const OrderedJson* items = part("items");
  if (items != nullptr && items->is_array()) return {items, part("additionalItems")};
  return {part("prefixItems"), items};
}

}  // namespace moepack
