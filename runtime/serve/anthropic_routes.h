// The paths of Anthropic's Messages API.
#pragma once

#include "runtime/serve/route.h"

namespace moepack {

// POST /messages and POST /messages/count_tokens.
void add_anthropic_routes(RouteTable& table);

}  // namespace moepack
