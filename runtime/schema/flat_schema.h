// Schemas of JSON without what references and combinations say in a roundabout way.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/status.h"
#include "runtime/schema/ordered_json.h"
#include "runtime/schema/schema_limits.h"
#include "runtime/schema/schema_reference.h"

namespace moepack {

// A schema apart from what choices and references say.
struct FlatSchema {
  OrderedJson base = true;
  std::vector<OrderedJson> choices;  // arrays of schemas; one of each holds
};
// What must hold beside a way of the first choice: the base and the other choices, as a list.
OrderedJson beside_first_choice(const FlatSchema& flat);
OrderedJson joined_schema(const OrderedJson& beside, const OrderedJson& way);

// Schemas of which one holds, without choices and references of their own; none is false.
struct PlainWays {
  std::vector<OrderedJson> ways;
  bool is_complete = true;  // false: there are more, too many or within themselves
};

class SchemaFlattener {
 public:
  // Gets a keyword and what was done about it.
  using Listener = std::function<void(const std::string& keyword, const std::string& what)>;

  // `root` and `work` outlive the object.
  SchemaFlattener(const OrderedJson& root, SchemaWork& work, Listener on_warning = {})
      : references_(root), work_(work), on_warning_(std::move(on_warning)) {}

  // What `schema` says with references and "allOf" resolved. kInvalidArgument, with the keyword,
  // for what is no schema or too large.
  Result<FlatSchema> flatten(const OrderedJson& schema);
  // The same with the choices made.
  Result<PlainWays> plain_ways(const OrderedJson& schema);
  SchemaWork& work() { return work_; }

 private:
  Status flatten_into(const OrderedJson& schema, FlatSchema& flat, int& budget);
  Status flatten_reference(const OrderedJson& reference, FlatSchema& flat, int& budget);
  Status merge_keywords(OrderedJson keywords, FlatSchema& flat);
  Status add_ways(const OrderedJson& schema, int depth, PlainWays& plain);
  void warn(const std::string& keyword, const std::string& what) const {
    if (on_warning_) on_warning_(keyword, what);
  }

  SchemaReferences references_;
  SchemaWork& work_;
  Listener on_warning_;
};

// kInvalidArgument.
Status schema_error(const std::string& keyword, std::string_view what);

}  // namespace moepack
