// How large a schema may be: compiling one takes memory by the square of its longest name, and
// schemas come from anybody.
#pragma once

#include <cstddef>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"

namespace moepack {

constexpr std::size_t kMostSchemaBytes = std::size_t{128} << 10U;  // names, texts and values
constexpr std::size_t kMostSchemaName = 1024;                      // of a property, in bytes

// kInvalidArgument for a schema beyond that.
Status check_schema_size(const OrderedJson& schema);

}  // namespace moepack
