#include "runtime/schema/schema_merge.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/schema/item_schemas.h"
#include "runtime/schema/schema_limits.h"
#include "runtime/schema/schema_value.h"

namespace moepack {
namespace {

std::size_t places_of(const ItemSchemas& items) {
  return items.places != nullptr ? items.places->size() : 0;
}

bool has_items(const ItemSchemas& items) {
  return (items.places != nullptr && items.places->is_array()) ||
         (items.places == nullptr && items.others != nullptr);
}

OrderedJson all_of(const OrderedJson& a, const OrderedJson& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return {{"allOf", OrderedJson::array({a, b})}};
}

std::set<std::string> type_names(const OrderedJson& type) {
  std::set<std::string> names;
  const auto add = [&](const OrderedJson& name) {
    if (name.is_string()) names.insert(name.get<std::string>());
  };
  if (type.is_array()) {
    for (const OrderedJson& name : type) add(name);
  } else {
    add(type);
  }
  return names;
}

// Of "number" and "integer" the narrower one stays.
OrderedJson common_types(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson common = OrderedJson::array();
  const std::set<std::string> of_b = type_names(b);
  const auto has = [&](const char* name) { return of_b.count(name) > 0; };
  for (const std::string& name : type_names(a)) {
    if (of_b.count(name) > 0 || (name == "integer" && has("number"))) {
      common.push_back(name);
    } else if (name == "number" && has("integer")) {
      common.push_back("integer");
    }
  }
  return common;
}

// Texts that are the same where values are equal.
std::set<std::string> texts_of(const OrderedJson& values) {
  std::set<std::string> texts;
  for (const OrderedJson& value : values) texts.insert(canonical_text(value));
  return texts;
}

OrderedJson common_values(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson common = OrderedJson::array();
  const std::set<std::string> of_b = texts_of(b);
  for (const OrderedJson& value : a) {
    if (of_b.count(canonical_text(value)) > 0) common.push_back(value);
  }
  return common;
}

OrderedJson joined_names(OrderedJson a, const OrderedJson& b) {
  if (!a.is_array() || !b.is_array()) return a;
  std::set<std::string> known = texts_of(a);
  for (const OrderedJson& name : b) {
    if (known.insert(canonical_text(name)).second) a.push_back(name);
  }
  return a;
}

// What `schema` says of a property that it does not name.
OrderedJson unnamed_property(const OrderedJson& schema) {
  const auto found = schema.find("additionalProperties");
  return found == schema.end() ? OrderedJson(true) : *found;
}

OrderedJson merged_properties(const OrderedJson& a, const OrderedJson& b) {
  using Members = OrderedJson::object_t;
  const Members none;
  const auto properties_of = [&](const OrderedJson& schema) -> const Members& {
    const auto found = schema.find("properties");
    return found != schema.end() && found->is_object() ? found->get_ref<const Members&>() : none;
  };
  using Index = std::unordered_map<std::string_view, const OrderedJson*>;
  const auto index_of = [](const Members& members) {
    Index index;
    for (const auto& [name, schema] : members) index.emplace(name, &schema);
    return index;
  };
  const Members& of_a = properties_of(a);
  const Members& of_b = properties_of(b);
  const Index in_a = index_of(of_a), in_b = index_of(of_b);
  OrderedJson merged = OrderedJson::object();
  auto& members = merged.get_ref<Members&>();
  const OrderedJson others_of_a = unnamed_property(a), others_of_b = unnamed_property(b);
  for (const auto& [name, schema] : of_a) {
    const auto other = in_b.find(name);
    members.emplace_back(name, all_of(schema, other != in_b.end() ? *other->second : others_of_b));
  }
  for (const auto& [name, schema] : of_b) {
    if (in_a.count(name) == 0) members.emplace_back(name, all_of(schema, others_of_a));
  }
  return merged;
}

// Places that only one part has are among the others of the other part.
void merge_items(const ItemSchemas& a, const ItemSchemas& b, OrderedJson& merged) {
  static const OrderedJson kAny = true;
  const auto place = [](const ItemSchemas& of, std::size_t i) -> const OrderedJson& {
    if (i < places_of(of)) return (*of.places)[i];
    return of.others != nullptr ? *of.others : kAny;
  };
  const std::size_t count = std::max(places_of(a), places_of(b));
  OrderedJson places = OrderedJson::array();
  for (std::size_t i = 0; i < count; ++i) places.push_back(all_of(place(a, i), place(b, i)));
  OrderedJson others = all_of(place(a, count), place(b, count));
  for (const char* key : {"prefixItems", "additionalItems"}) merged.erase(key);
  if (count > 0) merged["prefixItems"] = std::move(places);
  merged["items"] = std::move(others);
}

bool is_any_of(std::string_view key, std::initializer_list<std::string_view> keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// One keyword that both have. False if it cannot be joined.
bool merge_keyword(OrderedJson& a, const std::string& key, const OrderedJson& of_b) {
  OrderedJson& of_a = a[key];
  // The library takes a large unsigned number for a negative one, which among constants would show.
  if (key != "const" && key != "enum" && of_a == of_b) return true;
  const bool are_numbers = of_a.is_number() && of_b.is_number();
  if (is_any_of(key, {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}) &&
      are_numbers) {
    if (of_a < of_b) of_a = of_b;
  } else if (is_any_of(key,
                       {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}) &&
             are_numbers) {
    if (of_b < of_a) of_a = of_b;
  } else if (key == "type") {
    of_a = common_types(of_a, of_b);
  } else if (key == "required") {
    of_a = joined_names(of_a, of_b);
  } else if (key == "enum" && of_a.is_array() && of_b.is_array()) {
    of_a = common_values(of_a, of_b);
  } else if (key == "const") {
    // No value is two constants.
    if (canonical_text(of_a) != canonical_text(of_b)) a["enum"] = OrderedJson::array();
  } else if (key == "additionalProperties") {
    of_a = all_of(of_a, of_b);
  } else {
    return false;
  }
  return true;
}

bool is_of_items(std::string_view key) {
  return is_any_of(key, {"items", "prefixItems", "additionalItems"});
}

bool is_note(std::string_view key) {
  return is_any_of(
      key, {"title", "description", "default", "examples", "example", "$comment", "deprecated",
            "readOnly", "writeOnly", "$schema", "$id", "$defs", "definitions"});
}

}  // namespace

std::size_t merge_bytes(const OrderedJson& a, const OrderedJson& b) {
  if (!a.is_object() || !b.is_object()) return 0;
  const auto copied = [](const OrderedJson& places, const OrderedJson& others) {
    const ItemSchemas items = item_schemas(others);
    const auto named = places.find("properties");
    const std::size_t names = named != places.end() ? named->size() : 0;
    std::size_t bytes = names * schema_bytes(unnamed_property(others));
    if (items.others != nullptr) {
      bytes += places_of(item_schemas(places)) * schema_bytes(*items.others);
    }
    return bytes;
  };
  return schema_bytes(a) + copied(a, b) + copied(b, a);
}

Result<OrderedJson> merge_schemas(const OrderedJson& a, const OrderedJson& b,
                                  std::vector<std::string>* dropped) {
  const auto is_schema = [](const OrderedJson& s) { return s.is_object() || s.is_boolean(); };
  if (!is_schema(a) || !is_schema(b)) {
    return invalid_argument("a schema must be an object, true or false");
  }
  if (a == false || b == false) return OrderedJson(false);
  if (a == true || a.empty()) return b;
  if (b == true || b.empty()) return a;
  OrderedJson merged = a;
  const ItemSchemas items_of_a = item_schemas(a), items_of_b = item_schemas(b);
  const bool joins_items = has_items(items_of_a) && has_items(items_of_b);
  for (const auto& [key, value] : b.items()) {
    if (key == "properties" || (joins_items && is_of_items(key))) continue;
    if (!merged.contains(key)) {
      merged[key] = value;
    } else if (!is_note(key) && !merge_keyword(merged, key, value) && dropped != nullptr) {
      dropped->push_back(key);
    }
  }
  if (joins_items) merge_items(items_of_a, items_of_b, merged);
  const OrderedJson properties = merged_properties(a, b);
  if (!properties.empty()) merged["properties"] = properties;
  return merged;
}

}  // namespace moepack
