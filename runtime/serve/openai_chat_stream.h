// The answer of POST /v1/chat/completions as server-sent events.
#pragma once

#include <memory>

#include "runtime/serve/answer_writer.h"
#include "runtime/serve/openai_parts.h"

namespace moepack {

// Chunks in the order of events; those of several choices mixed, choice 0 first. "role" stands in
// the first chunk of a choice alone; id, type and name of a call in its first chunk alone; a call
// without arguments gets "{}"; usage is the last chunk, if it was asked for.
std::unique_ptr<StreamWriter> make_openai_chat_stream(OpenaiAnswer answer);

}  // namespace moepack
