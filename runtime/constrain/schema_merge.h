// Schemas of JSON as trees: what a value must be to satisfy two of them, and what "$ref" names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"

namespace moepack {

// The part of `root` that a reference like "#/$defs/a" names; nullptr if there is none, or if the
// reference leaves the document.
const OrderedJson* find_reference(const OrderedJson& root, std::string_view reference);

// A schema whose values satisfy both `a` and `b`, which are objects or booleans without "$ref",
// "allOf", "anyOf" and "oneOf" of their own (those of their parts are kept). Keywords that cannot
// be joined are taken from `a` and named in `dropped`. kInvalidArgument for what is no schema.
Result<OrderedJson> merge_schemas(const OrderedJson& a, const OrderedJson& b,
                                  std::vector<std::string>* dropped);

}  // namespace moepack
