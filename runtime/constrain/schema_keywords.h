// Single keywords of schemas that grammars and checks of constants read alike.
#pragma once

#include <cstdint>
#include <optional>

#include "formats/base/status.h"
#include "runtime/constrain/string_pattern.h"
#include "runtime/schema/flat_schema.h"
#include "runtime/schema/ordered_json.h"

namespace moepack {

// A length or a number of items; `absent` where the schema has none. kInvalidArgument.
Result<std::uint32_t> count_keyword(const OrderedJson& schema, const char* key,
                                    std::uint32_t absent);

// What strings must match: "pattern", else "format". What is not held to is told to `warn`.
Result<std::optional<StringPattern>> pattern_keyword(const OrderedJson& schema,
                                                     const SchemaFlattener::Listener& warn);

}  // namespace moepack
