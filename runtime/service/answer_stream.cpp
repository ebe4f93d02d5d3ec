#include "runtime/service/answer_stream.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include "runtime/chat/output_text.h"
#include "runtime/service/sampled_texts.h"

namespace moepack {
namespace {

// A call that needs more tokens than this behind its arguments has lost its end marker.
constexpr std::size_t kMostTailTokens = 32;

}  // namespace

AnswerStream::AnswerStream(AnswerStreamOptions options, AnswerSink sink)
    : options_(std::move(options)),
      sink_(std::move(sink)),
      stop_texts_(options_.stop),
      parser_(make_output_parser(options_.parser)) {}

void AnswerStream::tell(AnswerEventBody body) {
  sink_({.choice = options_.choice, .body = std::move(body)});
}

void AnswerStream::on_queued(std::size_t before) {
  if (options_.choice == 0) tell(AnswerQueued{before});
}

void AnswerStream::on_started(std::uint64_t prompt_tokens, std::uint64_t cached_tokens) {
  usage_.prompt_tokens = prompt_tokens;
  usage_.cached_tokens = cached_tokens;
  if (options_.choice == 0) tell(AnswerStarted{prompt_tokens, cached_tokens});
  if (!options_.wants_logprobs) echo();
}

void AnswerStream::on_prompt(std::uint64_t done, double seconds) {
  if (options_.choice != 0) return;
  tell(PromptProgress{.total = usage_.prompt_tokens,
                      .cached = usage_.cached_tokens,
                      .done = done,
                      .seconds = seconds});
}

// Without probabilities: all at once.
void AnswerStream::echo() {
  if (options_.echoed.empty()) return;
  const auto written = std::span(options_.echoed).subspan(options_.unwritten);
  tell(ContentText{.text = options_.tokenizer->decode(written), .logprobs = {}, .is_prompt = true});
}

TokenLogprobs AnswerStream::logprobs_of(const TokenStep& step) const {
  const auto told = [&](const TokenChance& chance) {
    return TokenLogprob{.id = chance.id,
                        .bytes = std::string(options_.tokenizer->bytes(chance.id)),
                        .logprob = chance.logprob};
  };
  TokenLogprobs probs{.token = told(step.token), .top = {}};
  for (const TokenChance& chance : step.top) probs.top.push_back(told(chance));
  return probs;
}

// A character of several tokens is told with the last of them.
void AnswerStream::echo_token(const TokenStep& step) {
  logprobs_.push_back(logprobs_of(step));
  echo_text_ += logprobs_.back().token.bytes;
  if (!ends_inside_character(echo_text_)) tell_echo();
}

void AnswerStream::tell_echo() {
  if (logprobs_.empty()) return;
  tell(ContentText{
      .text = std::exchange(echo_text_, {}), .logprobs = take_logprobs(), .is_prompt = true});
}

// With probabilities. The first token of a text follows nothing, and has none; a prompt of one
// token has no other.
void AnswerStream::begin_echo() {
  if (options_.echoed.empty() || !options_.wants_logprobs) return;
  if (std::exchange(has_echo_begun_, true)) return;
  echo_token({.token = {.id = options_.echoed.front(), .logprob = kNoLogprob}, .top = {}});
}

void AnswerStream::on_prompt_token(const TokenStep& step) {
  if (options_.echoed.empty() || !options_.wants_logprobs) return;
  begin_echo();
  echo_token(step);
}

TextListener::Next AnswerStream::on_token(const TokenStep& step) {
  begin_echo();
  if (usage_.completion_tokens == 0) tell_echo();
  ++usage_.completion_tokens;
  const std::string_view bytes = options_.tokenizer->bytes(step.token.id);
  const bool is_added = options_.tokenizer->added_token(bytes) == step.token.id;
  if (options_.parser.parses_calls) generated_.add(step.token.id, bytes, is_added);
  if (options_.on_sampled) sampled_.push_back(step.token.id);
  Next next;
  if (is_cut_short_) {
    next.goes_on = ++tail_tokens_ < kMostTailTokens && !is_call_complete();
    return next;
  }
  if (parser_->is_in_reasoning()) ++usage_.reasoning_tokens;
  std::optional<TokenLogprobs> logprobs;
  if (options_.wants_logprobs) logprobs = logprobs_of(step);
  push(bytes, is_added, std::move(logprobs));
  next.goes_on = !stop_.has_value() && !(is_cut_short_ && is_call_complete());
  const bool is_spent = options_.thinking_budget.has_value() && parser_->is_in_reasoning() &&
                        usage_.reasoning_tokens >= *options_.thinking_budget;
  if (is_spent && next.goes_on) {
    next.forced = options_.end_of_thinking;
    options_.thinking_budget.reset();
  }
  return next;
}

void AnswerStream::note(std::optional<TokenLogprobs>& logprobs) {
  if (logprobs.has_value()) logprobs_.push_back(*std::exchange(logprobs, std::nullopt));
}

void AnswerStream::push(std::string_view bytes, bool is_added,
                        std::optional<TokenLogprobs> logprobs) {
  if (bytes.empty() || options_.stop.empty()) note(logprobs);
  if (bytes.empty()) return;
  if (options_.stop.empty()) {
    take(parser_->push({.bytes = bytes, .is_added = is_added}));
    return;
  }
  waiting_.push_back(
      {.bytes = std::string(bytes), .is_added = is_added, .logprobs = std::move(logprobs)});
  if (parser_->is_in_call()) return release(bytes.size());
  look_for_stop(std::string(bytes));
}

// Stop texts are of what a client reads: within a call they would leave a part of it, which no
// client can use, and within the frame of calls and messages they would end what is not complete.
void AnswerStream::look_for_stop(std::string bytes) {
  while (true) {
    const StopTexts::Step step = stop_texts_.push(bytes);
    release(step.text.size());
    if (parser_->is_in_call()) {
      stop_texts_.restart();
      return release_all();
    }
    if (!step.stop) return;
    const Waiting& next = waiting_.front();
    if (!parser_->is_in_frame({.bytes = next.bytes, .is_added = next.is_added})) {
      stop_ = step.stop;
      return cut_waiting();
    }
    bytes = release_framed();
  }
}

// What waits begins within a frame: it goes on, by the smallest part. Gives the bytes behind that,
// in which the search begins anew.
std::string AnswerStream::release_framed() {
  stop_texts_.restart();
  const Waiting& next = waiting_.front();
  release((next.is_added ? next.bytes.size() : 1) - released_);
  std::string bytes;
  for (const Waiting& token : waiting_) bytes += token.bytes;
  return bytes;
}

// A stop text that begins within an added token of the content: what stands before it is text.
void AnswerStream::cut_waiting() {
  waiting_.front().is_added = false;
  release(0);
}

// So many more bytes that wait are no stop text.
void AnswerStream::release(std::size_t bytes) {
  released_ += bytes;
  while (!waiting_.empty() && released_ > 0) {
    Waiting& first = waiting_.front();
    const std::size_t count = std::min(released_, first.bytes.size());
    const bool is_whole = count == first.bytes.size();
    if (first.is_added && !is_whole) return;
    note(first.logprobs);
    take(parser_->push(
        {.bytes = std::string_view(first.bytes).substr(0, count), .is_added = first.is_added}));
    released_ -= count;
    if (is_whole) {
      waiting_.pop_front();
    } else {
      first.bytes.erase(0, count);
    }
  }
}

void AnswerStream::release_all() {
  std::size_t bytes = 0;
  for (const Waiting& token : waiting_) bytes += token.bytes.size();
  release(bytes - released_);
}

std::vector<TokenLogprobs> AnswerStream::take_logprobs() { return std::exchange(logprobs_, {}); }

// Where `text` begins in the tokens that are parsed: where a token begins, if it stands there.
std::size_t AnswerStream::place_of(std::string_view text) const {
  std::string all;
  std::vector<std::size_t> begins;
  for (const TokenLogprobs& token : logprobs_) {
    begins.push_back(all.size());
    all += token.token.bytes;
  }
  const auto first = std::find_if(begins.begin(), begins.end(), [&](std::size_t at) {
    return std::string_view(all).substr(at).starts_with(text);
  });
  return first != begins.end() ? *first : all.rfind(text);
}

// Those of the tokens that `text` is of: what stands before it was a mark of thoughts, of a message
// or white space behind one, and told of nothing.
std::vector<TokenLogprobs> AnswerStream::take_logprobs_of(std::string_view text) {
  const std::size_t begin = place_of(text);
  if (begin != std::string::npos) {
    std::size_t end = 0;
    const auto first = std::find_if(logprobs_.begin(), logprobs_.end(), [&](const auto& token) {
      return (end += token.token.bytes.size()) > begin;
    });
    logprobs_.erase(logprobs_.begin(), first);
  }
  return take_logprobs();
}

// What is left at the end of an answer whose thoughts, calls or messages have marks.
void AnswerStream::drop_logprobs_of_frames() {
  if (!options_.parser.parses_reasoning && !options_.parser.parses_calls) return;
  std::erase_if(logprobs_, [this](const TokenLogprobs& token) {
    const std::string& bytes = token.token.bytes;
    return options_.tokenizer->added_token(bytes) == token.token.id ||
           std::all_of(bytes.begin(), bytes.end(), is_output_space);
  });
}

// The id that the model wrote, or a new one. A client tells calls apart by their ids: where it has
// one with this id, the number at its end goes up.
std::string AnswerStream::id_of_call(std::string written) {
  if (written.empty()) return options_.make_call_id();
  if (is_new_id(written)) return written;
  const std::size_t digits = written.find_last_not_of("0123456789") + 1;
  std::uint64_t number = 0;
  std::from_chars(written.data() + digits, written.data() + written.size(), number);
  const std::string base = written.substr(0, digits);
  do {
    written = base + std::to_string(++number);
  } while (!is_new_id(written));
  return written;
}

// It is given then.
bool AnswerStream::is_new_id(const std::string& id) {
  if (options_.known_ids != nullptr && options_.known_ids->count(id) > 0) return false;
  return given_ids_.insert(id).second;
}

void AnswerStream::take(std::vector<ParsedOutput> outputs) {
  for (ParsedOutput& output : outputs) {
    if (is_cut_short_) return;
    take_one(std::move(output));
  }
}

void AnswerStream::take_one(ParsedOutput output) {
  if (auto* reasoning = std::get_if<ParsedReasoning>(&output)) {
    auto logprobs = take_logprobs_of(reasoning->text);
    tell(ReasoningText{.text = std::move(reasoning->text), .logprobs = std::move(logprobs)});
  } else if (auto* content = std::get_if<ParsedContent>(&output)) {
    auto logprobs = take_logprobs_of(content->text);
    tell(ContentText{.text = std::move(content->text), .logprobs = std::move(logprobs)});
  } else if (auto* begin = std::get_if<ParsedCallBegin>(&output)) {
    logprobs_.clear();  // of the call's mark
    call_ids_.push_back(id_of_call(begin->id));
    has_written_id_.push_back(begin->id.empty() || begin->id == call_ids_.back());
    tell(CallBegin{
        .call = call_ids_.size() - 1, .id = call_ids_.back(), .name = std::move(begin->name)});
  } else if (auto* part = std::get_if<ParsedCallArguments>(&output)) {
    tell(CallArguments{.call = call_ids_.size() - 1, .fragment = std::move(part->fragment)});
  } else {
    tell(CallEnd{.call = call_ids_.size() - 1});
    logprobs_.clear();
    ++ended_calls_;
    is_cut_short_ = !options_.is_parallel;
  }
}

// Whether the text has the call to its end marker, which is what comes back in the next prompt.
bool AnswerStream::is_call_complete() {
  const ToolFormat format = options_.parser.format;
  return call_markers(format).begin.empty() ||
         call_texts(generated_, format).size() >= ended_calls_;
}

void AnswerStream::remember_calls() {
  if (options_.calls == nullptr || ended_calls_ == 0) return;
  std::vector<CallText> texts = call_texts(generated_, options_.parser.format);
  if (texts.size() != ended_calls_) return;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!has_written_id_[i]) continue;  // beside the results of the other id it would be wrong
    options_.calls->remember(call_key(options_.call_scope, call_ids_[i]), std::move(texts[i]));
  }
}

AnswerEndReason AnswerStream::reason_of(TextEnd end) const {
  const bool has_failed = end == TextEnd::kCancelled || end == TextEnd::kError;
  if (is_cut_short_ && !has_failed) return AnswerEndReason::kToolCalls;
  switch (end) {
    case TextEnd::kStopToken:
    case TextEnd::kStopped:
      if (stop_.has_value()) return AnswerEndReason::kStopText;
      return ended_calls_ > 0 ? AnswerEndReason::kToolCalls : AnswerEndReason::kStop;
    case TextEnd::kLength:
      return AnswerEndReason::kLength;
    case TextEnd::kContext:
      return AnswerEndReason::kContext;
    case TextEnd::kCancelled:
      return AnswerEndReason::kCancelled;
    default:
      return AnswerEndReason::kError;
  }
}

void AnswerStream::on_end(TextEnd end, const Status& status, const TextTimes& times) {
  if (end != TextEnd::kCancelled && end != TextEnd::kError) begin_echo();
  if (usage_.completion_tokens == 0 && !echo_text_.empty()) tell_echo();
  const bool is_cut = end != TextEnd::kStopToken;
  if (!stop_.has_value()) release(stop_texts_.finish().size());
  if (!is_cut_short_) take(parser_->finish(is_cut));
  // What is left are tokens of a call or of a stop text, which are no part of the content, or those
  // of a text that was told without them.
  const bool is_of_content = !stop_.has_value() && call_ids_.empty();
  drop_logprobs_of_frames();
  if (is_of_content && !logprobs_.empty()) {
    tell(ContentText{.text = {}, .logprobs = take_logprobs()});
  }
  remember_calls();
  if (options_.on_sampled) options_.on_sampled(sampled_);
  usage_.cached_tokens = times.cached_tokens;
  AnswerEnd told{.reason = reason_of(end),
                 .stop_text = {},
                 .status = status,
                 .usage = usage_,
                 .timings = {.prompt_seconds = times.prompt_seconds,
                             .decode_seconds = times.decode_seconds,
                             .prompt_tokens = times.prompt_tokens - times.cached_tokens,
                             .decode_tokens = times.decode_tokens}};
  if (stop_.has_value()) told.stop_text = options_.stop[*stop_];
  tell(std::move(told));
}

}  // namespace moepack
