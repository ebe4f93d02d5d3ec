// An answer on its way, whatever protocol the client speaks.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// The logprob of a token that has none (the first of an echo, what can never come), as servers of
// OpenAI's protocol write it.
constexpr float kNoLogprob = -9999.0F;

// A token with the probability it had among all tokens, before the sampler changed anything.
struct TokenLogprob {
  std::int32_t id = 0;
  std::string bytes;  // may be a part of a character
  float logprob = 0;  // natural logarithm, or kNoLogprob
};
struct TokenLogprobs {
  TokenLogprob token;
  std::vector<TokenLogprob> top;  // the most probable first; may lack the token
};

struct AnswerQueued {
  std::size_t before = 0;
};  // requests before this one; tells of every change
// The first event but for AnswerQueued.
struct AnswerStarted {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of them: taken from a state kept before
};
struct PromptProgress {
  std::uint64_t total = 0, cached = 0, done = 0;  // tokens; done counts the cached ones too
  double seconds = 0;                             // since the prompt's first slice
};
// Texts are whole UTF-8 characters. `logprobs` has the tokens that end in this piece; empty unless
// they were asked for.
struct ReasoningText {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
};
struct ContentText {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
  bool is_prompt = false;  // the prompt again, which nothing has drawn
};
struct CallBegin {
  std::size_t call = 0;
  std::string id, name;
};  // calls count from 0
struct CallArguments {
  std::size_t call = 0;
  std::string fragment;
};  // joined: JSON
struct CallEnd {
  std::size_t call = 0;
};

enum class AnswerEndReason : std::uint8_t {
  kStop,       // the model ended its turn
  kStopText,   // a text of AnswerOptions::stop came
  kToolCalls,  // it ended its turn with calls
  kLength,     // max_tokens
  kContext,    // the context is full
  kCancelled,  // RunningAnswer::cancel or the end of the service
  kError,
};
struct AnswerUsage {
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
};
struct AnswerTimings {
  double prompt_seconds = 0, decode_seconds = 0;
  std::uint64_t prompt_tokens = 0, decode_tokens = 0;  // computed in these seconds
};
// The last event of a choice.
struct AnswerEnd {
  AnswerEndReason reason = AnswerEndReason::kStop;
  std::string stop_text;  // with kStopText
  Status status;          // with kError
  AnswerUsage usage;
  AnswerTimings timings;
};

using AnswerEventBody = std::variant<AnswerQueued, AnswerStarted, PromptProgress, ReasoningText,
                                     ContentText, CallBegin, CallArguments, CallEnd, AnswerEnd>;
struct AnswerEvent {
  std::uint32_t choice = 0;  // below AnswerOptions::choices
  AnswerEventBody body;
};

}  // namespace moepack
