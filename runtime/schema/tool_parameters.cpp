#include "runtime/schema/tool_parameters.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace moepack {
namespace {

// One object's schema without choices.
struct ObjectWay {
  std::vector<ToolParameter> named;
  std::optional<OrderedJson> others;
};

// What is not said twice.
void add_alternative(std::vector<OrderedJson>& schemas, const OrderedJson& schema) {
  if (std::find(schemas.begin(), schemas.end(), schema) == schemas.end()) schemas.push_back(schema);
}

OrderedJson any_of(std::vector<OrderedJson> schemas) {
  if (schemas.size() == 1) return std::move(schemas.front());
  return {{"anyOf", OrderedJson(std::move(schemas))}};
}

bool may_be_object(const OrderedJson& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  if (!type->is_array()) return *type == OrderedJson("object");
  return std::find(type->begin(), type->end(), OrderedJson("object")) != type->end();
}

Status add_named(const OrderedJson& schema, ObjectWay& way) {
  const auto named = schema.find("properties");
  if (named == schema.end()) return Status::ok();
  if (!named->is_object()) return schema_error("properties", "must be an object");
  for (const auto& [name, of_name] : named->items()) way.named.push_back({name, of_name});
  return Status::ok();
}

void add_required(const OrderedJson& schema, ObjectWay& way) {
  const auto required = schema.find("required");
  if (required == schema.end() || !required->is_array()) return;
  std::unordered_map<std::string_view, std::size_t> places;
  way.named.reserve(way.named.size() + required->size());  // names stay where they are
  for (std::size_t i = 0; i < way.named.size(); ++i) places.emplace(way.named[i].name, i);
  for (const OrderedJson& name : *required) {
    if (!name.is_string()) continue;
    const auto& text = name.get_ref<const std::string&>();
    const auto [place, is_new] = places.emplace(text, way.named.size());
    if (is_new) way.named.push_back({text, way.others.value_or(OrderedJson(true))});
    way.named[place->second].is_required = true;
  }
}

// nullopt where no object satisfies it.
Result<std::optional<ObjectWay>> object_way(const OrderedJson& schema) {
  ObjectWay way;
  if (!schema.is_object()) return std::optional(std::move(way));  // true: anything
  if (!may_be_object(schema)) return std::optional<ObjectWay>();
  if (const auto others = schema.find("additionalProperties"); others != schema.end()) {
    way.others = *others;
  }
  MOE_RETURN_IF_ERROR(add_named(schema, way));
  add_required(schema, way);
  for (const ToolParameter& one : way.named) {
    if (one.is_required && one.schema == false) return std::optional<ObjectWay>();
  }
  return std::optional(std::move(way));
}

// Joins ways, of which one holds.
class ParameterUnion {
 public:
  explicit ParameterUnion(SchemaWork& work) : work_(work) {}

  Status add(const ObjectWay& way) {
    ++ways_;
    note_required(way);
    for (const ToolParameter& one : way.named) MOE_RETURN_IF_ERROR(add_one(one));
    if (!way.others.has_value()) return Status::ok();
    is_silent_ = false;
    if (*way.others == OrderedJson(false)) return Status::ok();
    add_alternative(others_, *way.others);
    return work_.spend(cost_of(others_)) ? Status::ok() : too_large_schema();
  }

  ToolParameters take() {
    ToolParameters all;
    for (Entry& entry : entries_) {
      // Where a way does not name it, it may be one of that way's others.
      if (entry.ways < ways_) {
        for (const OrderedJson& other : others_) add_alternative(entry.schemas, other);
      }
      all.named.push_back({.name = std::move(entry.name),
                           .schema = any_of(std::move(entry.schemas)),
                           .is_required = entry.required == ways_,
                           .is_required_somewhere = entry.required > 0});
    }
    if (ways_ <= ToolParameters::kMostRequiredWays) all.required_ways = std::move(required_ways_);
    if (!others_.empty()) {
      all.others = any_of(std::move(others_));
    } else if (!is_silent_) {
      all.others = OrderedJson(false);
    }
    return all;
  }

 private:
  struct Entry {
    std::string name;
    std::vector<OrderedJson> schemas;
    std::size_t ways = 0, required = 0;  // that name it, that require it
  };

  void note_required(const ObjectWay& way) {
    if (ways_ > ToolParameters::kMostRequiredWays) return;
    std::vector<std::string>& names = required_ways_.emplace_back();
    for (const ToolParameter& one : way.named) {
      if (one.is_required) names.push_back(one.name);
    }
  }

  Status add_one(const ToolParameter& one) {
    const auto [place, is_new] = places_.emplace(one.name, entries_.size());
    if (is_new) entries_.push_back({.name = one.name, .schemas = {}});
    Entry& entry = entries_[place->second];
    ++entry.ways;
    entry.required += one.is_required ? 1 : 0;
    add_alternative(entry.schemas, one.schema);
    return work_.spend(cost_of(entry.schemas)) ? Status::ok() : too_large_schema();
  }

  // Of comparing with all of them.
  static std::size_t cost_of(const std::vector<OrderedJson>& schemas) {
    constexpr std::size_t kComparedBytes = 16;
    return kComparedBytes * schemas.size();
  }

  SchemaWork& work_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> places_;
  std::vector<OrderedJson> others_;
  std::vector<std::vector<std::string>> required_ways_;
  std::size_t ways_ = 0;
  bool is_silent_ = true;
};

}  // namespace

Result<ToolParameters> tool_parameters(const OrderedJson& parameters, SchemaFlattener& flattener) {
  MOE_ASSIGN_OR_RETURN(const PlainWays plain, flattener.plain_ways(parameters));
  if (!plain.is_complete) return too_large_schema();
  ParameterUnion all(flattener.work());
  bool is_possible = false;
  for (const OrderedJson& schema : plain.ways) {
    MOE_ASSIGN_OR_RETURN(const std::optional<ObjectWay> way, object_way(schema));
    if (!way.has_value()) continue;
    is_possible = true;
    MOE_RETURN_IF_ERROR(all.add(*way));
  }
  if (!is_possible) return invalid_argument("no value satisfies the schema");
  return all.take();
}

}  // namespace moepack
