// How large a schema may be: compiling one takes memory by the square of its longest name, and
// schemas come from anybody.
#pragma once

#include <cstddef>

#include "formats/base/status.h"
#include "runtime/schema/ordered_json.h"

namespace moepack {

constexpr std::size_t kMostSchemaBytes = std::size_t{128} << 10U;  // names, texts and values
constexpr std::size_t kMostSchemaName = 1024;                      // of a property, in bytes

constexpr std::size_t kMostTypeNames = 16;  // of a value; JSON has seven

// Different schemas of one "anyOf" or "oneOf" that are no constants: a text that may still be of
// each of them stands in some ways per schema, and GrammarMachine::kMaxWays are kept.
constexpr std::size_t kMostAlternatives = 200;

// What compiling schemas may cost: bytes of schemas that are written down, copied or merged.
// References and combinations make a small schema as large as one likes. One for all the schemas of
// a request.
class SchemaWork {
 public:
  static constexpr std::size_t kMost = std::size_t{8} << 20U;

  // False when that was too much.
  bool spend(std::size_t bytes) {
    spent_ += bytes < kMost ? bytes : kMost;
    return is_left();
  }
  bool is_left() const { return spent_ < kMost; }

 private:
  std::size_t spent_ = 0;
};
// What a schema counts for.
std::size_t schema_bytes(const OrderedJson& schema);
// kInvalidArgument.
Status too_large_schema();

// kInvalidArgument for a schema that is larger than the constants above say.
Status check_schema_size(const OrderedJson& schema);

}  // namespace moepack
