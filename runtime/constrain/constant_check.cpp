#include "runtime/constrain/constant_check.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/utf8.h"
#include "runtime/constrain/schema_keywords.h"
#include "runtime/schema/item_schemas.h"
#include "runtime/schema/schema_limits.h"
#include "runtime/schema/schema_value.h"

namespace moepack {
namespace {

// Deeper constants count as wrong, and so does a choice that leads to itself.
constexpr int kMostDepth = 200;
// What asking a schema counts for, and a name of an object's schema.
constexpr std::size_t kAskedBytes = 16;
constexpr std::size_t kNameBytes = 4;

using Members = OrderedJson::object_t;

std::size_t characters_of(const std::string& text) {
  std::size_t count = 0;
  for (const char* at = text.data(); at < text.data() + text.size(); ++count) next_character(&at);
  return count;
}

Result<bool> has_type(const OrderedJson& value, const OrderedJson& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  if (type->is_string()) return is_of_type(value, type->get_ref<const std::string&>());
  if (!type->is_array()) return schema_error("type", "must be a name or a list of names");
  if (type->size() > kMostTypeNames) return schema_error("type", "names too many types");
  return std::any_of(type->begin(), type->end(), [&](const OrderedJson& name) {
    return name.is_string() && is_of_type(value, name.get_ref<const std::string&>());
  });
}

// Of "minimum" with `sign` 1, of "maximum" with -1. Draft 4 says with true that the twin is
// excluded.
Result<bool> is_beyond(long double value, const OrderedJson& schema, const char* key,
                       const char* exclusive, int sign) {
  bool is_excluded = false;
  for (const char* name : {exclusive, key}) {
    const auto bound = schema.find(name);
    if (bound == schema.end() || bound->is_null()) continue;
    if (bound->is_boolean()) {
      is_excluded = name == exclusive && bound->get<bool>();
      continue;
    }
    if (!bound->is_number()) return schema_error(name, "must be a number");
    const long double distance = (value - number_of(*bound)) * static_cast<long double>(sign);
    const bool is_open = name == exclusive || is_excluded;
    if (distance < 0 || (is_open && distance == 0)) return true;
  }
  return false;
}

Result<bool> number_holds(const OrderedJson& number, const OrderedJson& schema) {
  const long double value = number_of(number);
  MOE_ASSIGN_OR_RETURN(const bool is_low,
                       is_beyond(value, schema, "minimum", "exclusiveMinimum", 1));
  MOE_ASSIGN_OR_RETURN(const bool is_high,
                       is_beyond(value, schema, "maximum", "exclusiveMaximum", -1));
  return !is_low && !is_high;
}

Result<bool> count_holds(std::size_t count, const OrderedJson& schema, const char* least,
                         const char* most) {
  MOE_ASSIGN_OR_RETURN(const std::uint32_t min, count_keyword(schema, least, 0));
  MOE_ASSIGN_OR_RETURN(const std::uint32_t max,
                       count_keyword(schema, most, GrammarNode::kNoMaximum));
  return count >= min && count <= max;
}

Result<std::set<std::string>> listed_texts(const OrderedJson& schema) {
  std::set<std::string> texts;
  const OrderedJson& listed = schema["enum"];
  if (!listed.is_array()) return schema_error("enum", "must be a list");
  for (const OrderedJson& value : listed) texts.insert(canonical_text(value));
  return texts;
}

}  // namespace

Result<std::vector<OrderedJson>> ConstantCheck::values() {
  std::vector<OrderedJson> values;
  const OrderedJson& base = root_.flat.base;
  if (!base.is_object()) return values;  // it contradicts itself
  const auto only = base.find("const");
  const auto listed = base.find("enum");
  if (only == base.end() && listed == base.end()) return values;
  if (listed != base.end() && !listed->is_array()) return schema_error("enum", "must be a list");
  if (only != base.end()) {
    MOE_ASSIGN_OR_RETURN(const bool is_possible, is_listed(*only, root_));
    if (is_possible) values.push_back(*only);
  } else {
    values.assign(listed->begin(), listed->end());
  }
  std::vector<OrderedJson> left;
  for (OrderedJson& value : values) {
    MOE_ASSIGN_OR_RETURN(const bool holds, keywords_hold(value, root_, 0));
    if (holds) left.push_back(std::move(value));
  }
  return left;
}

Result<ConstantCheck::Part*> ConstantCheck::part_of(const OrderedJson& schema) {
  std::unique_ptr<Part>& part = parts_[&schema];
  if (part != nullptr) return part.get();
  MOE_ASSIGN_OR_RETURN(FlatSchema flat, flattener_.flatten(schema));
  part = std::make_unique<Part>();
  part->flat = std::move(flat);
  return part.get();
}

Result<bool> ConstantCheck::satisfies(const OrderedJson& value, const OrderedJson& schema,
                                      int depth) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (depth >= kMostDepth) return false;
  if (!flattener_.work().spend(kAskedBytes)) return too_large_schema();
  MOE_ASSIGN_OR_RETURN(Part* const part, part_of(schema));
  const OrderedJson& base = part->flat.base;
  if (base.is_boolean() && !base.get<bool>()) return false;
  if (base.is_object()) {
    MOE_ASSIGN_OR_RETURN(const bool is_one, is_listed(value, *part));
    if (!is_one) return false;
    MOE_ASSIGN_OR_RETURN(const bool holds, keywords_hold(value, *part, depth));
    if (!holds) return false;
  }
  return satisfies_choices(value, part->flat, depth);
}

Result<bool> ConstantCheck::satisfies_choices(const OrderedJson& value, const FlatSchema& flat,
                                              int depth) {
  for (const OrderedJson& ways : flat.choices) {
    bool is_satisfied = false;
    for (const OrderedJson& way : ways) {
      MOE_ASSIGN_OR_RETURN(is_satisfied, satisfies(value, way, depth + 1));
      if (is_satisfied) break;
    }
    if (!is_satisfied) return false;
  }
  return true;
}

// Whether it is what "const" and "enum" allow.
Result<bool> ConstantCheck::is_listed(const OrderedJson& value, Part& part) {
  const OrderedJson& schema = part.flat.base;
  const auto only = schema.find("const");
  const bool has_list = schema.contains("enum");
  if (only == schema.end() && !has_list) return true;
  const std::string text = canonical_text(value);
  if (only != schema.end() && canonical_text(*only) != text) return false;
  if (!has_list) return true;
  if (!part.listed.has_value()) {
    MOE_ASSIGN_OR_RETURN(part.listed, listed_texts(schema));
  }
  return part.listed->count(text) > 0;
}

Result<bool> ConstantCheck::keywords_hold(const OrderedJson& value, Part& part, int depth) {
  const OrderedJson& schema = part.flat.base;
  MOE_ASSIGN_OR_RETURN(const bool is_typed, has_type(value, schema));
  if (!is_typed) return false;
  if (value.is_number()) return number_holds(value, schema);
  if (value.is_string()) return string_holds(value.get_ref<const std::string&>(), part);
  if (value.is_array()) return array_holds(value, schema, depth);
  return value.is_object() ? object_holds(value, schema, depth) : Result<bool>(true);
}

Result<bool> ConstantCheck::string_holds(const std::string& text, Part& part) {
  const OrderedJson& schema = part.flat.base;
  MOE_ASSIGN_OR_RETURN(const bool has_length,
                       count_holds(characters_of(text), schema, "minLength", "maxLength"));
  if (!has_length) return false;
  if (!part.pattern.has_value()) {
    MOE_ASSIGN_OR_RETURN(part.pattern, patterns_.of(schema));
  }
  return *part.pattern == nullptr || (*part.pattern)->matches(text);
}

Result<bool> ConstantCheck::array_holds(const OrderedJson& value, const OrderedJson& schema,
                                        int depth) {
  MOE_ASSIGN_OR_RETURN(const bool has_size,
                       count_holds(value.size(), schema, "minItems", "maxItems"));
  if (!has_size) return false;
  const ItemSchemas items = item_schemas(schema);
  const bool has_places = items.places != nullptr;
  if (has_places && !items.places->is_array()) {
    return schema_error("prefixItems", "must be a list");
  }
  const std::size_t placed = has_places ? items.places->size() : 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const OrderedJson* of_item = i < placed ? &(*items.places)[i] : items.others;
    if (of_item == nullptr) break;
    MOE_ASSIGN_OR_RETURN(const bool holds, satisfies(value[i], *of_item, depth + 1));
    if (!holds) return false;
  }
  return true;
}

Result<bool> ConstantCheck::object_holds(const OrderedJson& value, const OrderedJson& schema,
                                         int depth) {
  const auto named = schema.find("properties");
  const auto required = schema.find("required");
  const auto others = schema.find("additionalProperties");
  const bool has_names = named != schema.end();
  if (has_names && !named->is_object()) return schema_error("properties", "must be an object");
  const std::size_t names = (has_names ? named->size() : 0) +
                            (required != schema.end() ? required->size() : 0) + value.size();
  if (!flattener_.work().spend(kNameBytes * names)) return too_large_schema();
  std::unordered_map<std::string_view, const OrderedJson*> members;
  for (const auto& [key, item] : value.get_ref<const Members&>()) members.emplace(key, &item);
  if (required != schema.end() && required->is_array()) {
    for (const OrderedJson& name : *required) {
      if (!name.is_string()) return schema_error("required", "must list names");
      if (members.count(name.get_ref<const std::string&>()) == 0) return false;
    }
  }
  if (has_names) {
    for (const auto& [name, of_name] : named->get_ref<const Members&>()) {
      const auto member = members.find(name);
      if (member == members.end()) continue;
      MOE_ASSIGN_OR_RETURN(const bool holds, satisfies(*member->second, of_name, depth + 1));
      if (!holds) return false;
      members.erase(member);
    }
  }
  if (others == schema.end()) return true;
  for (const auto& [name, item] : members) {
    MOE_ASSIGN_OR_RETURN(const bool holds, satisfies(*item, *others, depth + 1));
    if (!holds) return false;
  }
  return true;
}

}  // namespace moepack
