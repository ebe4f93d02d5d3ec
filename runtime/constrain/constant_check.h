// Whether the constants of a schema satisfy what stands beside them. As JSON Schema has it:
// keywords of one type say nothing of the others, keys come in any order, and an object that a
// schema lists may have keys that the schema does not name.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/base/status.h"
#include "runtime/constrain/pattern_matcher.h"
#include "runtime/schema/flat_schema.h"
#include "runtime/schema/ordered_json.h"

namespace moepack {

class ConstantCheck {
 public:
  // `base`: a schema without references and choices of its own. `flattener` and `patterns` outlive
  // the object.
  ConstantCheck(SchemaFlattener& flattener, PatternMatchers& patterns, OrderedJson base)
      : flattener_(flattener), patterns_(patterns) {
    root_.flat.base = std::move(base);
  }

  // The values that "const" or "enum" of the base leaves, as they are written there.
  // kInvalidArgument for what is no schema, or too large.
  Result<std::vector<OrderedJson>> values();

 private:
  // A schema that values meet, with what is made of it when it is first asked for.
  struct Part {
    FlatSchema flat;
    std::optional<std::set<std::string>> listed;  // canonical texts of "enum"
    std::optional<PatternMatcher*> pattern;
  };

  Result<Part*> part_of(const OrderedJson& schema);
  // `depth`: schemas that are open around this one.
  Result<bool> satisfies(const OrderedJson& value, const OrderedJson& schema, int depth);
  Result<bool> satisfies_choices(const OrderedJson& value, const FlatSchema& flat, int depth);
  Result<bool> is_listed(const OrderedJson& value, Part& part);
  Result<bool> keywords_hold(const OrderedJson& value, Part& part, int depth);
  Result<bool> string_holds(const std::string& text, Part& part);
  Result<bool> array_holds(const OrderedJson& value, const OrderedJson& schema, int depth);
  Result<bool> object_holds(const OrderedJson& value, const OrderedJson& schema, int depth);

  SchemaFlattener& flattener_;
  PatternMatchers& patterns_;
  Part root_;
  // By where the schema stands: in the root or in another part.
  std::unordered_map<const OrderedJson*, std::unique_ptr<Part>> parts_;
};

}  // namespace moepack
