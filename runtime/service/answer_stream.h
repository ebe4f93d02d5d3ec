// One choice of an answer: tokens come in, events go out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/chat/output_parser.h"
#include "runtime/chat/stop_texts.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/service/answer_events.h"
#include "runtime/service/answer_service.h"
#include "runtime/service/call_memory.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

struct AnswerStreamOptions {
  const Tokenizer* tokenizer = nullptr;  // outlives the stream
  CallMemory* calls = nullptr;           // outlives the stream; null: texts are not remembered
  std::string call_scope;                // conversation_scope() of the messages before the answer
  // Of the conversation's calls; may be null.
  std::shared_ptr<const std::unordered_set<std::string>> known_ids;
  std::uint32_t choice = 0;
  OutputParserOptions parser;
  std::vector<std::string> stop;  // looked for outside of calls
  bool wants_logprobs = false;
  bool is_parallel = true;  // else the first call ends the answer, its end marker included
  // Of thoughts: most tokens, and the ids that end them then.
  std::optional<std::uint64_t> thinking_budget;
  std::vector<std::int32_t> end_of_thinking;
  // Of an echo: the prompt, which is told before the answer.
  std::vector<std::int32_t> echoed;
  std::size_t unwritten = 0;  // of its ids, which begin it: told only among probabilities
  // Gives a new id of a call.
  std::function<std::string()> make_call_id;
  // Told at the end what was sampled, the token that ended the text left out. May be empty.
  std::function<void(const std::vector<std::int32_t>& ids)> on_sampled;
};

// Called by the scheduler's thread.
class AnswerStream final : public TextListener {
 public:
  AnswerStream(AnswerStreamOptions options, AnswerSink sink);

  void on_queued(std::size_t before) override;
  void on_started(std::uint64_t prompt_tokens, std::uint64_t cached_tokens) override;
  void on_prompt(std::uint64_t done, double seconds) override;
  void on_prompt_token(const TokenStep& step) override;
  Next on_token(const TokenStep& step) override;
  void on_end(TextEnd end, const Status& status, const TextTimes& times) override;

 private:
  // Bytes that the stop texts have not let go yet.
  struct Waiting {
    std::string bytes;
    bool is_added = false;
    std::optional<TokenLogprobs> logprobs = {};  // until some of its bytes have been parsed
  };
  void tell(AnswerEventBody body);
  void echo();
  void begin_echo();
  void tell_echo();
  void echo_token(const TokenStep& step);
  TokenLogprobs logprobs_of(const TokenStep& step) const;
  void push(std::string_view bytes, bool is_added, std::optional<TokenLogprobs> logprobs);
  void look_for_stop(std::string bytes);
  std::string release_framed();
  void cut_waiting();
  void release(std::size_t bytes);
  void release_all();
  void note(std::optional<TokenLogprobs>& logprobs);
  void drop_logprobs_of_frames();
  void take(std::vector<ParsedOutput> outputs);
  void take_one(ParsedOutput output);
  bool is_new_id(const std::string& id);
  std::string id_of_call(std::string written);
  std::vector<TokenLogprobs> take_logprobs();
  std::size_t place_of(std::string_view text) const;
  std::vector<TokenLogprobs> take_logprobs_of(std::string_view text);
  bool is_call_complete();
  void remember_calls();
  AnswerEndReason reason_of(TextEnd end) const;

  AnswerStreamOptions options_;
  AnswerSink sink_;
  StopTexts stop_texts_;
  std::unique_ptr<OutputParser> parser_;
  std::deque<Waiting> waiting_;
  std::size_t released_ = 0;             // of its bytes, which begin an added token: it goes whole
  std::string echo_text_;                // ends within a character
  std::vector<TokenLogprobs> logprobs_;  // of tokens that are parsed and not told yet
  AnswerUsage usage_;
  GeneratedText generated_;  // all of it, where calls are offered
  std::vector<std::int32_t> sampled_;
  std::vector<std::string> call_ids_;
  std::vector<bool> has_written_id_;           // of a call: its text says the id that was told
  std::unordered_set<std::string> given_ids_;  // of these, those that the model wrote
  std::size_t ended_calls_ = 0;
  std::optional<std::size_t> stop_;  // which stop text came
  bool has_echo_begun_ = false;
  bool is_cut_short_ = false;    // a call ended an answer that may have one
  std::size_t tail_tokens_ = 0;  // that came behind that call
};

}  // namespace moepack
