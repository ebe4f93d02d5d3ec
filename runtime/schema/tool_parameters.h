// What a tool's schema says of its arguments, one by one: the view that parsers of calls and the
// grammars of calls share.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/schema/flat_schema.h"
#include "runtime/schema/ordered_json.h"

namespace moepack {

struct ToolParameter {
  std::string name;
  OrderedJson schema;  // a part of the document; references in it are the document's; false: never
  bool is_required = false;
  bool is_required_somewhere = false;  // by one of the ways at least
};

struct ToolParameters {
  std::vector<ToolParameter> named;
  // The schema of arguments that are not named; nullopt: the tool's schema is silent about them.
  std::optional<OrderedJson> others;
  // What each way requires: names of `named`. Empty where the ways are more than kMostRequiredWays.
  static constexpr std::size_t kMostRequiredWays = 16;
  std::vector<std::vector<std::string>> required_ways;
};

// Of an object's schema, which is the flattener's document, with references and "allOf" resolved.
// Of "anyOf" and "oneOf" all ways count: a name is one that any of them has, with the schemas of
// all, and required where all require it. What is required without being named has the schema of
// the others. kInvalidArgument where no object satisfies the schema, or for what is no schema.
Result<ToolParameters> tool_parameters(const OrderedJson& parameters, SchemaFlattener& flattener);

}  // namespace moepack
