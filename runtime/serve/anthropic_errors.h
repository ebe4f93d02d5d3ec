// Errors in the words of Anthropic's Messages API.
#pragma once

#include <string>

#include "runtime/serve/api_error.h"

namespace moepack {

// {"type":"error","error":{"type","message"},"request_id"}. A request that is longer than the
// context is told with "prompt is too long: N tokens > M maximum", by which agents know that they
// must shorten their history. An ErrorFormat; never fails.
std::string anthropic_error_body(const ApiError& error, const std::string& request_id);

}  // namespace moepack
