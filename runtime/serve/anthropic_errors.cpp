#include "runtime/serve/anthropic_errors.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/answer_writer.h"

namespace moepack {
namespace {

std::string_view anthropic_error_type(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::kInvalidRequest:
    case ApiErrorKind::kContextLength:
    case ApiErrorKind::kMethod:
    case ApiErrorKind::kMediaType:
      return "invalid_request_error";
    case ApiErrorKind::kAuthentication:
      return "authentication_error";
    case ApiErrorKind::kPermission:
      return "permission_error";
    case ApiErrorKind::kNotFound:
      return "not_found_error";
    case ApiErrorKind::kTooLarge:
      return "request_too_large";
    case ApiErrorKind::kRateLimit:
      return "rate_limit_error";
    case ApiErrorKind::kUnavailable:
      return "overloaded_error";
    case ApiErrorKind::kServer:
    case ApiErrorKind::kNotSupported:
      return "api_error";
  }
  return "api_error";
}

std::string anthropic_error_message(const ApiError& error) {
  if (error.kind == ApiErrorKind::kContextLength) {
    return "prompt is too long: " + std::to_string(error.prompt_tokens) + " tokens > " +
           std::to_string(error.context) + " maximum";
  }
  return error.message;
}

}  // namespace

std::string anthropic_error_body(const ApiError& error, const std::string& request_id) {
  OrderedJson inner = OrderedJson::object();
  inner["type"] = anthropic_error_type(error.kind);
  inner["message"] = anthropic_error_message(error);
  OrderedJson body = OrderedJson::object();
  body["type"] = "error";
  body["error"] = std::move(inner);
  if (!request_id.empty()) body["request_id"] = request_id;
  return dump_json(body);
}

}  // namespace moepack
