// Answers made up for tests of protocols, and streams taken apart again.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/chat/conversation.h"
#include "runtime/serve/answer_writer.h"

namespace moepack::test {

AnswerEvent event(AnswerEventBody body);
AnswerEnd ended(AnswerEndReason reason, AnswerUsage usage = {.prompt_tokens = 412,
                                                             .cached_tokens = 380,
                                                             .completion_tokens = 37,
                                                             .reasoning_tokens = 12});

// A random answer, as the service could give it: thoughts, texts and calls in any order and any
// pieces, with any end. A call that is not ended comes only before an end by a limit.
std::vector<AnswerEvent> random_answer(std::mt19937_64& random);

struct ServerEvent {
  std::string name;
  OrderedJson data;
};
// Fails the test where the text is not a row of "event: NAME\ndata: JSON\n\n".
std::vector<ServerEvent> parse_stream(const std::string& text);

// All that a writer sends for these events; a keep_alive() where `keeps_alive` draws one.
std::string streamed(StreamWriter& writer, const std::vector<AnswerEvent>& events,
                     std::mt19937_64* keeps_alive = nullptr);
// The whole answer; null where it is an error, whose message then is in *error.
OrderedJson whole(WholeWriter& writer, const std::vector<AnswerEvent>& events,
                  std::string* error = nullptr);

OrderedJson json(std::string_view text);

}  // namespace moepack::test
