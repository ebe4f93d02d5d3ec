#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "formats/base/json.h"
#include "runtime/serve/anthropic_request.h"
#include "tests/fuzz/conversation_require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moepack::MessagesPurpose;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = moepack::parse_ordered_json(text, moepack::Where{.file = "fuzz"});
  if (!body.is_ok() || !body.value().is_object()) return 0;
  for (const MessagesPurpose purpose : {MessagesPurpose::kAnswer, MessagesPurpose::kCount}) {
    const auto result = moepack::read_messages_request(body.value(), purpose);
    if (const auto* error = std::get_if<moepack::ApiError>(&result)) {
      moepack::test::require_refusal(*error);
    } else {
      moepack::test::require_request(std::get<moepack::MessagesRequest>(result).chat);
    }
  }
  return 0;
}
