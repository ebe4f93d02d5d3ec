// The answer of POST /v1/completions, as server-sent events or in one piece.
#pragma once

#include <memory>

#include "runtime/serve/answer_writer.h"
#include "runtime/serve/openai_parts.h"

namespace moepack {

std::unique_ptr<StreamWriter> make_openai_completion_stream(OpenaiAnswer answer);
std::unique_ptr<WholeWriter> make_openai_completion_whole(OpenaiAnswer answer);

}  // namespace moepack
