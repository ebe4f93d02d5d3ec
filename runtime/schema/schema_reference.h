// What "$ref" names within a document.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/schema/ordered_json.h"

namespace moepack {

class SchemaReferences {
 public:
  // `root`, the document, outlives the object.
  explicit SchemaReferences(const OrderedJson& root) : root_(root) {}

  // The part that a reference names: "#", a pointer like "#/$defs/a" with its escapes (RFC 6901,
  // behind the percent signs of RFC 3986), or the "$anchor" of "#a" (in draft 7 an "$id" "#a").
  // nullptr if there is none, or if the reference leaves the document.
  const OrderedJson* find(std::string_view reference);

 private:
  const OrderedJson* find_pointer(std::string_view pointer) const;
  const OrderedJson* find_anchor(std::string_view name);

  const OrderedJson& root_;
  std::optional<std::map<std::string, const OrderedJson*, std::less<>>> anchors_;  // when asked for
};

}  // namespace moepack
