#include "runtime/serve/answer_session.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace moepack {
namespace {

double session_seconds(AnswerSession::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Of what was drawn.
bool is_text_event(const AnswerEvent& event) {
  const auto* content = std::get_if<ContentText>(&event.body);
  return (content != nullptr && !content->is_prompt) ||
         std::holds_alternative<ReasoningText>(event.body) ||
         std::holds_alternative<CallBegin>(event.body) ||
         std::holds_alternative<CallArguments>(event.body);
}

}  // namespace

HttpReply error_reply(const ApiError& error, ErrorFormat format, const std::string& request_id,
                      HttpHeaders headers) {
  headers.push_back({"Content-Type", "application/json"});
  if (error.retry_seconds > 0) {
    headers.push_back({"Retry-After", std::to_string(error.retry_seconds)});
  }
  if (!error.should_retry) headers.push_back({"x-should-retry", "false"});
  if (error.kind == ApiErrorKind::kAuthentication) {
    headers.push_back({"WWW-Authenticate", "Bearer"});
  }
  return {.status = http_status(error.kind),
          .headers = std::move(headers),
          .body = format(error, request_id)};
}

AnswerSession::AnswerSession(SessionContext context, AnswerJob job,
                             std::shared_ptr<ResponseWriter> response)
    : context_(std::move(context)), job_(std::move(job)), response_(std::move(response)) {
  for (std::size_t i = 0; i < request_count(); ++i) choices_ += choices_of(i);
}

std::size_t AnswerSession::request_count() const {
  const auto* completions = std::get_if<std::vector<CompletionRequest>>(&job_.request);
  return completions == nullptr ? 1 : completions->size();
}

std::uint32_t AnswerSession::choices_of(std::size_t request) const {
  if (const auto* chat = std::get_if<ChatRequest>(&job_.request)) return chat->options.choices;
  return std::get<std::vector<CompletionRequest>>(job_.request)[request].options.choices;
}

AnswerService::Started AnswerSession::start_request(std::size_t index, std::uint32_t offset) {
  AnswerSink sink = [self = shared_from_this(), offset](AnswerEvent event) {
    self->take(offset, std::move(event));
  };
  if (const auto* chat = std::get_if<ChatRequest>(&job_.request)) {
    return context_.service.start(*chat, std::move(sink));
  }
  return context_.service.start(std::get<std::vector<CompletionRequest>>(job_.request)[index],
                                std::move(sink));
}

void AnswerSession::start() {
  try {
    start_all();
  } catch (...) {
    give_up();
    throw;
  }
}

void AnswerSession::start_all() {
  if (const auto refusal = start_more()) return refuse(*refusal);
  if (has_ended_) return give_up();  // forgotten, or its events could not be kept
  accept();
  response_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel(false);
  });
}

void AnswerSession::hold(const std::shared_ptr<RunningAnswer>& answer) {
  bool is_cancelled = false;
  {
    const std::lock_guard lock(running_mutex_);
    running_.push_back(answer);
    is_cancelled = is_cancelled_;
  }
  if (is_cancelled) answer->cancel();
  if (has_ended_) drop_running();  // its end came before it was held
}

// A refusal is of the next request.
std::optional<Refusal> AnswerSession::start_more() {
  while (next_request_ < request_count() && !has_ended_) {
    const std::uint64_t ended_before = ended_count();
    AnswerService::Started started = start_request(next_request_, started_choices_);
    if (const auto* refusal = std::get_if<Refusal>(&started)) {
      const bool is_full = refusal->kind == Refusal::Kind::kBusy;
      if (!is_full || ended_before == started_choices_) return *refusal;  // not for its own others
      if (waits_for_others(ended_before)) return std::nullopt;
      continue;  // one has ended meanwhile
    }
    hold(std::get<std::unique_ptr<RunningAnswer>>(std::move(started)));
    started_choices_ += choices_of(next_request_++);
  }
  return std::nullopt;
}

std::uint64_t AnswerSession::ended_count() {
  const std::lock_guard lock(mutex_);
  return ended_choices_;
}

// Whether end_answer() will go on with the rest: no choice has ended since `ended_before`.
bool AnswerSession::waits_for_others(std::uint64_t ended_before) {
  const std::lock_guard lock(mutex_);
  has_rest_ = ended_choices_ == ended_before;
  return has_rest_;
}

bool AnswerSession::take_rest() {
  const std::lock_guard lock(mutex_);
  return std::exchange(has_rest_, false);
}

// In a worker, after one of the first requests has ended.
void AnswerSession::start_rest() {
  try {
    std::optional<Refusal> refusal;
    if (!is_cancelled_) {
      refusal = start_more();
      // What waits for others is ended once: here, or by the worker that end_answer() called.
      if (!refusal.has_value() && !(is_cancelled_ && take_rest())) return;
    }
    end_rest(refusal);
  } catch (...) {
    give_up();
  }
}

// Requests that are not started: others have taken their places, or the client has gone.
void AnswerSession::end_rest(const std::optional<Refusal>& refusal) {
  const bool streams = std::holds_alternative<std::unique_ptr<StreamWriter>>(job_.writer);
  if (refusal.has_value() && !streams) return refuse(*refusal);
  AnswerEnd end;
  end.reason = refusal.has_value() ? AnswerEndReason::kError : AnswerEndReason::kCancelled;
  if (refusal.has_value()) end.status = {StatusCode::kIo, refusal->message};
  for (std::uint32_t choice = started_choices_; choice < choices_; ++choice) {
    take(choice, {.choice = 0, .body = end});
  }
}

void AnswerSession::refuse(const Refusal& refusal) {
  has_ended_ = true;
  {
    const std::lock_guard lock(mutex_);
    early_.clear();
  }
  drop_running();
  const ApiError error = api_error(refusal);
  context_.metrics.add_reply(http_status(error.kind));
  response_->reply(error_reply(error, context_.errors, context_.request_id, context_.headers));
}

// Without an answer; a stream that has begun is cut.
void AnswerSession::give_up() {
  has_ended_ = true;
  {
    const std::lock_guard lock(mutex_);
    early_.clear();
    if (is_accepted_ && std::holds_alternative<std::unique_ptr<StreamWriter>>(job_.writer)) {
      response_->abort();
    }
  }
  drop_running();
}

// The handles hold what holds the session.
void AnswerSession::drop_running() {
  for (const auto& answer : take_running()) answer->cancel();
}

std::vector<std::shared_ptr<RunningAnswer>> AnswerSession::running_now() const {
  const std::lock_guard lock(running_mutex_);
  return running_;
}

std::vector<std::shared_ptr<RunningAnswer>> AnswerSession::take_running() {
  const std::lock_guard lock(running_mutex_);
  return std::exchange(running_, {});
}

void AnswerSession::accept() {
  const std::lock_guard lock(mutex_);
  is_accepted_ = true;
  if (auto* stream = std::get_if<std::unique_ptr<StreamWriter>>(&job_.writer)) {
    HttpHeaders headers = context_.headers;
    headers.push_back({"Content-Type", "text/event-stream"});
    headers.push_back({"Cache-Control", "no-cache"});
    headers.push_back({"X-Accel-Buffering", "no"});
    context_.metrics.add_reply(200);
    response_->begin(200, std::move(headers));
    send((*stream)->begin());
  }
  for (const AnswerEvent& event : std::exchange(early_, {})) process(event);
}

void AnswerSession::take(std::uint32_t offset, AnswerEvent event) {
  event.choice += offset;
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  try {
    if (!is_accepted_) {
      early_.push_back(std::move(event));
    } else {
      process(event);
    }
  } catch (...) {
    // The service must go on: this client alone sees its answer cut.
    has_ended_ = is_cancelled_ = true;
    response_->abort();
    context_.workers.post([self = shared_from_this()] { self->drop_running(); });
  }
}

void AnswerSession::process(const AnswerEvent& event) {
  if (has_ended_) return;
  note(event);
  if (auto* stream = std::get_if<std::unique_ptr<StreamWriter>>(&job_.writer)) {
    send((*stream)->on_event(event));
  } else {
    std::get<std::unique_ptr<WholeWriter>>(job_.writer)->on_event(event);
  }
  if (const auto* end = std::get_if<AnswerEnd>(&event.body)) end_answer(event.choice, *end);
}

void AnswerSession::note(const AnswerEvent& event) {
  if (!std::holds_alternative<AnswerQueued>(event.body)) is_computing_ = true;
  if (!is_text_event(event)) return;
  const Clock::time_point now = Clock::now();
  const bool is_first = last_texts_.empty();
  if (event.choice >= last_texts_.size()) last_texts_.resize(event.choice + 1);
  std::optional<Clock::time_point>& last = last_texts_[event.choice];
  if (last.has_value()) {
    context_.metrics.add_next_token(session_seconds(now - *last));
  } else if (is_first) {
    context_.metrics.add_first_token(session_seconds(now - begun_));
  }
  last = now;
}

void AnswerSession::send(std::string bytes) {
  if (bytes.empty()) return;
  last_sent_ = Clock::now();
  if (!response_->write(std::move(bytes))) cancel_later();
}

void AnswerSession::end_answer(std::uint32_t choice, const AnswerEnd& end) {
  RequestRecord& record = *context_.record;
  record.reason = end.reason;
  record.tokens += end.usage.completion_tokens;
  if (choice % choices_of(0) == 0) {  // all requests have as many; a prompt counts once
    record.prompt_tokens += end.usage.prompt_tokens;
    record.cached_tokens += end.usage.cached_tokens;
  }
  const bool has_failed =
      end.reason == AnswerEndReason::kError || end.reason == AnswerEndReason::kCancelled;
  context_.metrics.add_answer(session_seconds(Clock::now() - begun_), end.reason);
  if (++ended_choices_ < choices_) {
    if (has_failed) cancel_later();
    if (std::exchange(has_rest_, false)) {
      context_.workers.post([self = shared_from_this()] { self->start_rest(); });
    }
    return;
  }
  has_ended_ = true;
  if (std::holds_alternative<std::unique_ptr<StreamWriter>>(job_.writer)) {
    response_->end();
  } else {
    auto whole = std::get<std::unique_ptr<WholeWriter>>(job_.writer)->finish();
    if (const auto* error = std::get_if<ApiError>(&whole)) {
      context_.metrics.add_reply(http_status(error->kind));
      response_->reply(error_reply(*error, context_.errors, context_.request_id, context_.headers));
    } else {
      context_.metrics.add_reply(200);
      HttpHeaders headers = context_.headers;
      headers.push_back({"Content-Type", "application/json"});
      response_->reply({.status = 200,
                        .headers = std::move(headers),
                        .body = std::get<std::string>(std::move(whole))});
    }
  }
  // Handles are not dropped in a call of the service.
  context_.workers.post([forgotten = take_running()] {});
}

void AnswerSession::keep_awake(Clock::time_point before) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // something is being sent
  auto* stream = std::get_if<std::unique_ptr<StreamWriter>>(&job_.writer);
  if (stream == nullptr || !is_accepted_ || has_ended_ || last_sent_ > before) return;
  send((*stream)->keep_alive());
}

void AnswerSession::cancel(bool waiting_alone) {
  if (has_ended_ || (waiting_alone && is_computing_) || is_cancelled_.exchange(true)) return;
  for (const auto& answer : running_now()) answer->cancel();
}

void AnswerSession::cancel_later() {
  if (is_cancelled_.exchange(true)) return;
  context_.workers.post([all = running_now()] {
    for (const auto& answer : all) answer->cancel();
  });
}

void AnswerSession::forget() {
  has_ended_ = true;
  {
    const std::lock_guard lock(mutex_);  // the event that is written now
  }
  drop_running();
}

bool AnswerSession::has_ended() const { return has_ended_; }

}  // namespace moepack
