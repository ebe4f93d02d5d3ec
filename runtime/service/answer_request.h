// What a client asks for, whatever protocol it speaks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/sampler.h"

namespace moepack {

struct ResponseFormat {
  enum class Kind : std::uint8_t { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  OrderedJson schema;  // with kJsonSchema
};

struct ToolChoice {
  enum class Kind : std::uint8_t { kAuto, kNone, kRequired };
  Kind kind = Kind::kAuto;
  std::vector<std::string> allowed;  // names; empty: all that are offered. One name with kRequired
                                     // is the choice of that tool
  bool is_parallel = true;           // more than one call in an answer
};

struct AnswerOptions {
  std::optional<std::uint64_t>
      max_tokens;  // thoughts count too; nullopt: to the end of the context
  SamplerOptions sampling;
  std::vector<std::string> stop;  // end the answer and are not part of it; none is empty
  std::uint32_t choices = 1;      // "n"
  std::optional<std::uint32_t> top_logprobs;  // so many alternatives a token; nullopt: no logprobs
  bool ignores_end = false;                   // goes on after a token that ends a text
  bool reuses_states = true;                  // false: the whole prompt is computed
};

struct ChatRequest {
  Conversation conversation;
  AnswerOptions options;
  ToolChoice tool_choice;
  ResponseFormat format;
  std::optional<bool> thinks;                    // nullopt: as the template does
  std::optional<std::uint64_t> thinking_budget;  // most tokens of thoughts
  // Messages after which the client itself expects to come back ("cache_control"): indices.
  std::vector<std::size_t> cache_hints;
};

struct CompletionRequest {
  std::variant<std::string, std::vector<std::int32_t>> prompt;
  std::string suffix;  // what follows the gap, for models that know it; empty: no gap
  AnswerOptions options;
  ResponseFormat format;
  bool echo = false;  // the prompt is part of the answer, with its logprobs if there are any
};

}  // namespace moepack
