#include "convert/cli/chat_answer.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "convert/cli/chat_interrupt.h"
#include "formats/base/elapsed.h"

namespace moepack::cli {
namespace {

constexpr std::chrono::milliseconds kInterruptPause{30};

// Events between the service's thread and ours.
class EventQueue {
 public:
  void push(AnswerEventBody body) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(body));
    changed_.notify_one();
  }
  std::optional<AnswerEventBody> pop() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kInterruptPause, [this] { return !events_.empty(); })) {
      return std::nullopt;
    }
    AnswerEventBody body = std::move(events_.front());
    events_.pop_front();
    return body;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<AnswerEventBody> events_;
};

// Ctrl-C while an answer runs: it is cancelled, at the end of the step that is computed. A step
// that does not end, because a disk gives nothing, ends with the program: no thread can be taken
// away from a read.
class Interruption {
 public:
  explicit Interruption(ChatView& view) : view_(view) {}

  // Whether the answer is to be cancelled now.
  bool comes() {
    const bool is_asked = take_interrupt();
    if (!is_cancelled_) {
      is_cancelled_ = is_asked;
      cancelled_ = Clock::now();
      return is_asked;
    }
    if (is_asked && is_overdue_) end_program();
    if (is_overdue_ || Clock::now() - cancelled_ < kPatience) return false;
    is_overdue_ = true;
    view_.note("(the answer stops when its step is done; Ctrl-C again ends moepack)");
    return false;
  }

 private:
  static constexpr std::chrono::seconds kPatience{2};

  [[noreturn]] void end_program() {
    view_.end_answer();
    std::_Exit(kExitInterrupted);
  }

  ChatView& view_;
  bool is_cancelled_ = false;
  bool is_overdue_ = false;  // cancelled, and it still runs
  Clock::time_point cancelled_ = {};
};

// Puts the events of an answer together.
class AnswerCollector {
 public:
  explicit AnswerCollector(ChatView& view) : view_(view) {
    answer_.message.role = ChatRole::kAssistant;
  }
  void take(const AnswerEventBody& body) {
    if (const auto* thought = std::get_if<ReasoningText>(&body)) {
      answer_.message.reasoning += thought->text;
      view_.thought(thought->text);
    } else if (const auto* text = std::get_if<ContentText>(&body)) {
      answer_.message.content += text->text;
      view_.content(text->text);
    } else if (const auto* begin = std::get_if<CallBegin>(&body)) {
      call_ = {begin->id, begin->name, ""};
    } else if (const auto* part = std::get_if<CallArguments>(&body)) {
      call_.arguments += part->fragment;
    } else if (std::get_if<CallEnd>(&body) != nullptr) {
      answer_.message.calls.push_back(std::exchange(call_, {}));
    } else if (const auto* progress = std::get_if<PromptProgress>(&body)) {
      view_.prompt(progress->done, progress->total);
    } else if (const auto* end = std::get_if<AnswerEnd>(&body)) {
      answer_.end = *end;
      has_ended_ = true;
    }
  }
  bool has_ended() const { return has_ended_; }
  ChatAnswer answer() { return std::move(answer_); }

 private:
  ChatView& view_;
  ChatAnswer answer_;
  ToolCall call_;
  bool has_ended_ = false;
};

}  // namespace

Result<ChatAnswer> take_answer(AnswerService& service, const ChatRequest& request, ChatView& view) {
  const auto queue = std::make_shared<EventQueue>();
  (void)take_interrupt();  // one that came before is not about this answer
  auto started =
      service.start(request, [queue](AnswerEvent event) { queue->push(std::move(event.body)); });
  if (const auto* refusal = std::get_if<Refusal>(&started)) {
    return Status(StatusCode::kInvalidArgument, printable(refusal->message, 1024));
  }
  const auto& running = std::get<std::unique_ptr<RunningAnswer>>(started);
  AnswerCollector collector(view);
  Interruption interruption(view);
  while (!collector.has_ended()) {
    if (interruption.comes()) running->cancel();
    if (const auto body = queue->pop()) collector.take(*body);
  }
  view.end_answer();
  return collector.answer();
}

}  // namespace moepack::cli
