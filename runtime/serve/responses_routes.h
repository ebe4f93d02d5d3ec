// The paths of OpenAI's Responses API.
#pragma once

#include "runtime/serve/route.h"

namespace moepack {

// POST /responses and POST /responses/input_tokens. Nothing is kept, so GET /responses/ID finds
// nothing.
void add_responses_routes(RouteTable& table);

}  // namespace moepack
