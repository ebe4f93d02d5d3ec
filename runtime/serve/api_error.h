// What goes wrong with a request, before a protocol has put it into its own words.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/http/http_message.h"
#include "runtime/service/answer_service.h"

namespace moepack {

enum class ApiErrorKind : std::uint8_t {
  kInvalidRequest,  // 400
  kContextLength,   // 400: more tokens than the context has
  kAuthentication,  // 401
  kPermission,      // 403
  kNotFound,        // 404
  kMethod,          // 405
  kTooLarge,        // 413
  kMediaType,       // 415
  kRateLimit,       // 429
  kServer,          // 500
  kNotSupported,    // 501
  kUnavailable,     // 503
};

// After which a client may ask a server that loads, ends or is full again.
constexpr std::uint32_t kRetrySeconds = 5;

struct ApiError {
  ApiErrorKind kind = ApiErrorKind::kInvalidRequest;
  std::string message;                           // for people; one line
  std::string parameter = {};                    // part of the request; may be empty
  std::uint64_t prompt_tokens = 0, context = 0;  // with kContextLength
  std::uint32_t retry_seconds = 0;               // > 0: Retry-After
  bool should_retry = true;  // false: it will fail again ("x-should-retry: false")
};

int http_status(ApiErrorKind kind);
ApiError api_error(const Refusal& refusal);
inline ApiError invalid_request(std::string message, std::string parameter = {}) {
  return {.message = std::move(message), .parameter = std::move(parameter)};
}

// The body of an error in a protocol's words: JSON. `request_id`: of the header x-request-id.
using ErrorFormat = std::string (*)(const ApiError& error, const std::string& request_id);

// {"error":{"message","type","param","code"}}: the form of OpenAI, with llama.cpp's types.
std::string openai_error_body(const ApiError& error, const std::string& request_id);

}  // namespace moepack
