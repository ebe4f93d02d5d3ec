#include "runtime/serve/api_error.h"

#include <string_view>

#include "runtime/serve/answer_writer.h"

namespace moepack {
namespace {

struct ApiErrorNames {
  int status;
  std::string_view type;  // llama.cpp's
};

ApiErrorNames api_error_names(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::kInvalidRequest:
      return {400, "invalid_request_error"};
    case ApiErrorKind::kContextLength:
      return {400, "exceed_context_size_error"};
    case ApiErrorKind::kAuthentication:
      return {401, "authentication_error"};
    case ApiErrorKind::kPermission:
      return {403, "permission_error"};
    case ApiErrorKind::kNotFound:
      return {404, "not_found_error"};
    case ApiErrorKind::kMethod:
      return {405, "invalid_request_error"};
    case ApiErrorKind::kTooLarge:
      return {413, "invalid_request_error"};
    case ApiErrorKind::kMediaType:
      return {415, "invalid_request_error"};
    case ApiErrorKind::kRateLimit:
      return {429, "rate_limit_error"};
    case ApiErrorKind::kServer:
      return {500, "server_error"};
    case ApiErrorKind::kNotSupported:
      return {501, "not_supported_error"};
    case ApiErrorKind::kUnavailable:
      return {503, "unavailable_error"};
  }
  return {500, "server_error"};
}

ApiErrorKind api_error_kind(Refusal::Kind kind) {
  switch (kind) {
    case Refusal::Kind::kInvalid:
      return ApiErrorKind::kInvalidRequest;
    case Refusal::Kind::kContextLength:
      return ApiErrorKind::kContextLength;
    case Refusal::Kind::kBusy:
      return ApiErrorKind::kRateLimit;
    case Refusal::Kind::kEnding:
      return ApiErrorKind::kUnavailable;
    case Refusal::Kind::kInternal:
      return ApiErrorKind::kServer;
  }
  return ApiErrorKind::kServer;
}

}  // namespace

int http_status(ApiErrorKind kind) { return api_error_names(kind).status; }

ApiError api_error(const Refusal& refusal) {
  ApiError error{.kind = api_error_kind(refusal.kind),
                 .message = refusal.message,
                 .parameter = refusal.parameter,
                 .prompt_tokens = refusal.prompt_tokens,
                 .context = refusal.context,
                 .retry_seconds = refusal.retry_seconds};
  error.should_retry = refusal.kind != Refusal::Kind::kInternal;
  return error;
}

std::string openai_error_body(const ApiError& error, const std::string& request_id) {
  const bool is_length = error.kind == ApiErrorKind::kContextLength;
  OrderedJson inner = OrderedJson::object();
  inner["message"] = error.message;
  inner["type"] = api_error_names(error.kind).type;
  inner["param"] = error.parameter.empty() ? OrderedJson(nullptr) : OrderedJson(error.parameter);
  inner["code"] = is_length ? OrderedJson("context_length_exceeded") : OrderedJson(nullptr);
  if (is_length) {
    inner["n_prompt_tokens"] = error.prompt_tokens;
    inner["n_ctx"] = error.context;
  }
  if (!request_id.empty()) inner["request_id"] = request_id;
  OrderedJson body = OrderedJson::object();
  body["error"] = std::move(inner);
  return dump_json(body);
}

}  // namespace moepack
