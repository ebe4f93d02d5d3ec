// Bodies of requests: JSON to what the service is asked for, and back into answers.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "formats/base/json.h"
#include "runtime/serve/answer_writer.h"
#include "runtime/serve/chat_request_json.h"
#include "runtime/serve/completion_request_json.h"
#include "tests/fuzz/require.h"

namespace {

using moepack::ApiError;
using moepack::test::require;

// What can be said of every request that is taken.
void check_options(const moepack::AnswerOptions& options) {
  require(options.choices >= 1 && options.choices <= 64);
  for (const std::string& stop : options.stop) require(!stop.empty());
  require(options.sampling.top_p >= 0 && options.sampling.top_p <= 1);
}

void check_error(const ApiError& error) {
  require(!error.message.empty() && error.message.find('\n') == std::string::npos);
  // It can be told to the client.
  require(nlohmann::json::accept(moepack::openai_error_body(error, "id")));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = moepack::parse_ordered_json(text, moepack::Where{.file = "request body"});
  moepack::test::check_message(json.status());
  if (!json.is_ok() || !json.value().is_object()) return 0;
  (void)moepack::dump_json(json.value());
  const auto chat = moepack::parse_chat_request(json.value(), {});
  if (const auto* error = std::get_if<ApiError>(&chat)) {
    check_error(*error);
  } else {
    const auto& request = std::get<moepack::ParsedChatRequest>(chat).request;
    check_options(request.options);
    require(!request.conversation.messages.empty());
    require(!(request.conversation.continues_last && request.conversation.add_generation_prompt));
    for (const auto& tool : request.conversation.tools) require(!tool.name.empty());
  }
  const auto completion = moepack::parse_completion_request(json.value(), {});
  if (const auto* error = std::get_if<ApiError>(&completion)) {
    check_error(*error);
  } else {
    const auto& requests = std::get<moepack::ParsedCompletionRequest>(completion).requests;
    require(!requests.empty());
    check_options(requests.front().options);
  }
  return 0;
}
