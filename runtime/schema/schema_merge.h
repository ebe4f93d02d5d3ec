// Two schemas of JSON as one: what a value must be to satisfy both.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/schema/ordered_json.h"

namespace moepack {

// A schema whose values satisfy both `a` and `b`, which are objects or booleans without "$ref",
// "allOf", "anyOf" and "oneOf" of their own (those of their parts are kept). Keywords that cannot
// be joined are taken from `a` and named in `dropped`. kInvalidArgument for what is no schema.
Result<OrderedJson> merge_schemas(const OrderedJson& a, const OrderedJson& b,
                                  std::vector<std::string>* dropped);
// What merging them reads and copies, in bytes of schemas: what one says of all other keys and
// items is copied to each that the other names.
std::size_t merge_bytes(const OrderedJson& a, const OrderedJson& b);

}  // namespace moepack
