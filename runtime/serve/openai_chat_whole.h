// The answer of POST /v1/chat/completions in one piece.
#pragma once

#include <memory>

#include "runtime/serve/answer_writer.h"
#include "runtime/serve/openai_parts.h"

namespace moepack {

// A "chat.completion" object. Without calls there is no "tool_calls"; "content" is null beside
// calls alone.
std::unique_ptr<WholeWriter> make_openai_chat_whole(OpenaiAnswer answer);

}  // namespace moepack
