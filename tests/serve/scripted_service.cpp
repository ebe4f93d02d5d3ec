#include "tests/serve/scripted_service.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "formats/calibration/foreign_profile.h"
#include "runtime/placement/lane_report.h"
#include "runtime/schedule/slot_file.h"
#include "tests/serve/request_text.h"

namespace moepack::test {
namespace {

using Request = std::variant<ChatRequest, CompletionRequest>;

const AnswerOptions& options_of(const Request& request) {
  return std::visit([](const auto& r) -> const AnswerOptions& { return r.options; }, request);
}

std::string last_text(const Request& request) {
  if (const auto* chat = std::get_if<ChatRequest>(&request)) {
    return chat->conversation.messages.empty() ? "" : chat->conversation.messages.back().content;
  }
  const auto* text = std::get_if<std::string>(&std::get<CompletionRequest>(request).prompt);
  return text == nullptr ? "" : *text;
}

// Stops a script that waits.
struct Cancellation {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_cancelled = false;  // under mutex

  void cancel() {
    const std::lock_guard lock(mutex);
    is_cancelled = true;
    changed.notify_all();
  }
  // False: cancelled.
  bool sleep(double seconds) {
    std::unique_lock lock(mutex);
    return !changed.wait_for(lock, std::chrono::duration<double>(seconds),
                             [this] { return is_cancelled; });
  }
};

struct Counters {
  std::atomic<std::uint64_t> running{0}, waiting{0}, started{0};
};

AnswerEndReason end_reason(const std::string& name) {
  if (name == "stop_text") return AnswerEndReason::kStopText;
  if (name == "tool_calls") return AnswerEndReason::kToolCalls;
  if (name == "length") return AnswerEndReason::kLength;
  if (name == "context") return AnswerEndReason::kContext;
  if (name == "error") return AnswerEndReason::kError;
  return AnswerEndReason::kStop;
}

std::vector<TokenLogprobs> read_logprobs(const OrderedJson& event) {
  std::vector<TokenLogprobs> tokens;
  for (const OrderedJson& json : event.value("logprobs", OrderedJson::array())) {
    TokenLogprobs token;
    const auto one = [](const OrderedJson& from) {
      return TokenLogprob{.id = from.value("id", 0),
                          .bytes = from.value("token", std::string()),
                          .logprob = from.value("logprob", 0.0F)};
    };
    token.token = one(json);
    for (const OrderedJson& top : json.value("top", OrderedJson::array())) {
      token.top.push_back(one(top));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Plays one answer in a thread of its own.
class Player {
 public:
  Player(Request request, OrderedJson answer, AnswerSink sink, std::shared_ptr<Cancellation> cancel,
         std::shared_ptr<Counters> counters)
      : request_(std::move(request)),
        answer_(std::move(answer)),
        sink_(std::move(sink)),
        cancel_(std::move(cancel)),
        counters_(std::move(counters)),
        calls_(options_of(request_).choices, 0),
        has_ended_(options_of(request_).choices, false),
        usage_{.prompt_tokens = last_text(request_).size()} {}

  void play() {
    ++counters_->waiting;
    const bool goes_on = play_all(answer_.value("events", OrderedJson::array()));
    start();
    AnswerEnd end;
    end.reason = goes_on ? default_end() : AnswerEndReason::kCancelled;
    for (std::uint32_t c = 0; c < has_ended_.size(); ++c) finish(c, end);
    --counters_->running;
  }

 private:
  AnswerEndReason default_end() const {
    return calls_[0] > 0 ? AnswerEndReason::kToolCalls : AnswerEndReason::kStop;
  }
  void start() {
    if (std::exchange(has_started_, true)) return;
    --counters_->waiting;
    ++counters_->running;
    for (std::uint32_t c = 0; c < has_ended_.size(); ++c) {
      emit(c, AnswerStarted{usage_.prompt_tokens, usage_.cached_tokens});
    }
  }
  void emit(std::uint32_t choice, AnswerEventBody body) {
    sink_({.choice = choice, .body = std::move(body)});
  }
  void finish(std::uint32_t choice, AnswerEnd end) {
    if (has_ended_[choice]) return;
    has_ended_[choice] = true;
    end.usage.prompt_tokens = usage_.prompt_tokens;
    end.usage.cached_tokens = usage_.cached_tokens;
    if (end.usage.completion_tokens == 0) end.usage.completion_tokens = usage_.completion_tokens;
    if (end.usage.reasoning_tokens == 0) end.usage.reasoning_tokens = usage_.reasoning_tokens;
    end.timings = {.prompt_seconds = 0.5,
                   .decode_seconds = 2,
                   .prompt_tokens = usage_.prompt_tokens - usage_.cached_tokens,
                   .decode_tokens = end.usage.completion_tokens};
    emit(choice, std::move(end));
  }
  // False: cancelled.
  bool play_all(const OrderedJson& events) {
    for (const OrderedJson& event : events) {
      if (!cancel_->sleep(event.value("delay", 0.0))) return false;
      if (!play_one(event)) return false;
    }
    return true;
  }
  bool play_one(const OrderedJson& event) {
    if (event.contains("repeat")) {
      const std::int64_t count = event["repeat"];
      for (std::int64_t i = 0; count < 0 || i < count; ++i) {
        if (!play_all(event["events"])) return false;
      }
      return true;
    }
    if (event.contains("queued")) {
      emit(0, AnswerQueued{event["queued"].get<std::size_t>()});
      return true;
    }
    if (event.contains("started")) {
      usage_.prompt_tokens = event["started"].value("prompt", usage_.prompt_tokens);
      usage_.cached_tokens = event["started"].value("cached", std::uint64_t{0});
    }
    if (event.size() == 1 && event.contains("delay")) return true;
    start();
    if (event.contains("choice")) {
      play_for(event["choice"], event);
    } else {
      for (std::uint32_t c = 0; c < has_ended_.size(); ++c) play_for(c, event);
    }
    return true;
  }
  void play_for(std::uint32_t choice, const OrderedJson& event) {
    if (choice >= has_ended_.size() || has_ended_[choice]) return;
    if (event.contains("progress")) {
      const OrderedJson& p = event["progress"];
      emit(choice,
           PromptProgress{p.value("total", std::uint64_t{0}), p.value("cached", std::uint64_t{0}),
                          p.value("done", std::uint64_t{0}), p.value("seconds", 0.0)});
    }
    if (event.contains("reasoning")) {
      if (choice == 0) ++usage_.reasoning_tokens, ++usage_.completion_tokens;
      emit(choice, ReasoningText{event["reasoning"], read_logprobs(event)});
    }
    if (event.contains("content")) {
      if (choice == 0) ++usage_.completion_tokens;
      emit(choice, ContentText{event["content"], read_logprobs(event)});
    }
    if (event.contains("say_request")) {
      emit(choice, ContentText{request_text(request_), {}});
    }
    play_call(choice, event);
    play_end(choice, event);
  }
  void play_call(std::uint32_t choice, const OrderedJson& event) {
    if (event.contains("call")) {
      emit(choice, CallBegin{calls_[choice]++, event["call"].value("id", std::string("call_x")),
                             event["call"].value("name", std::string("f"))});
    }
    const std::size_t call = calls_[choice] - 1;
    if (event.contains("arguments")) emit(choice, CallArguments{call, event["arguments"]});
    if (event.contains("call_end")) emit(choice, CallEnd{call});
  }
  void play_end(std::uint32_t choice, const OrderedJson& event) {
    if (!event.contains("end")) return;
    AnswerEnd end;
    end.reason = end_reason(event["end"]);
    if (end.reason == AnswerEndReason::kError) {
      end.status = {StatusCode::kIo, event.value("message", std::string("scripted failure"))};
    }
    end.usage.completion_tokens = event.value("tokens", std::uint64_t{0});
    finish(choice, std::move(end));
  }

  const Request request_;
  const OrderedJson answer_;
  const AnswerSink sink_;
  const std::shared_ptr<Cancellation> cancel_;
  const std::shared_ptr<Counters> counters_;
  std::vector<std::size_t> calls_;
  std::vector<bool> has_ended_;
  AnswerUsage usage_;
  bool has_started_ = false;
};

class ScriptedAnswer final : public RunningAnswer {
 public:
  explicit ScriptedAnswer(std::shared_ptr<Cancellation> cancel) : cancel_(std::move(cancel)) {}
  ScriptedAnswer(const ScriptedAnswer&) = delete;
  ScriptedAnswer& operator=(const ScriptedAnswer&) = delete;
  ~ScriptedAnswer() override { cancel_->cancel(); }
  void cancel() override { cancel_->cancel(); }

 private:
  const std::shared_ptr<Cancellation> cancel_;
};

Refusal read_refusal(const OrderedJson& json) {
  Refusal refusal;
  const std::string kind = json.value("kind", std::string("invalid"));
  if (kind == "context") refusal.kind = Refusal::Kind::kContextLength;
  if (kind == "busy") refusal.kind = Refusal::Kind::kBusy;
  if (kind == "ending") refusal.kind = Refusal::Kind::kEnding;
  if (kind == "internal") refusal.kind = Refusal::Kind::kInternal;
  refusal.message = json.value("message", std::string("refused"));
  refusal.parameter = json.value("parameter", std::string());
  refusal.prompt_tokens = json.value("prompt_tokens", std::uint64_t{0});
  refusal.context = json.value("context", std::uint64_t{0});
  refusal.retry_seconds = json.value("retry", std::uint32_t{0});
  return refusal;
}

class ScriptedService final : public AnswerService {
 public:
  explicit ScriptedService(OrderedJson script) : script_(std::move(script)) {}
  ScriptedService(const ScriptedService&) = delete;
  ScriptedService& operator=(const ScriptedService&) = delete;
  ~ScriptedService() override {
    for (const auto& cancel : cancellations_) cancel->cancel();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return playing_ == 0; });
  }

  Started start(const ChatRequest& request, AnswerSink sink) override {
    return start_any(request, std::move(sink));
  }
  Started start(const CompletionRequest& request, AnswerSink sink) override {
    return start_any(request, std::move(sink));
  }

  std::variant<RenderedPrompt, Refusal> render(const ChatRequest& request) const override {
    const std::string text = conversation_text(request.conversation);
    return RenderedPrompt{.text = {.text = text, .from_user = {}},
                          .ids = std::get<0>(tokenize(text, {}))};
  }
  std::variant<std::vector<std::int32_t>, Refusal> tokenize(
      std::string_view text, const TextReading& reading) const override {
    std::vector<std::int32_t> ids;
    if (reading.begins_text) ids.push_back(0);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string token_bytes(std::int32_t id) const override {
    return std::string(1, static_cast<char>(id));
  }
  std::string detokenize(const std::vector<std::int32_t>& ids) const override {
    std::string text;
    for (const std::int32_t id : ids) text += token_bytes(id);
    return text;
  }
  ServiceModel model() const override {
    const OrderedJson json = script_.value("model", OrderedJson::object());
    ServiceModel model;
    model.id = json.value("id", std::string("scripted"));
    model.context = json.value("context", std::uint64_t{4096});
    model.trained_context = model.context;
    model.vocabulary = json.value("vocabulary", std::uint64_t{256});
    model.parameters = 1000;
    model.file_bytes = 2000;
    model.chat_template = json.value("chat_template", std::string("{{ scripted }}"));
    model.bos_token = "<s>";
    model.eos_token = "</s>";
    model.parallel = json.value("parallel", 1U);
    model.can_think = model.can_call_tools = true;
    return model;
  }
  ServiceStats stats() const override {
    ServiceStats stats;
    stats.requests_running = counters_->running;
    stats.requests_waiting = counters_->waiting;
    stats.expert_hits = 30;
    stats.expert_misses = 10;
    return stats;
  }
  std::vector<SlotState> slots() const override {
    return {SlotState{.id = 0, .is_processing = counters_->running > 0, .prompt_tokens = 7}};
  }
  ExpertMap expert_map() const override {
    ExpertMap map{.layers = 4, .experts = 16, .warmth = {}, .is_resident = {}};
    for (std::uint32_t i = 0; i < map.layers * map.experts; ++i) {
      map.warmth.push_back(static_cast<std::uint8_t>((i * 37) % 256));
      map.is_resident.push_back(i % 3 == 0);
    }
    return map;
  }
  Result<std::uint64_t> save_slot(std::uint32_t slot, const std::string& name) override {
    if (!is_slot_name(name)) return invalid_argument("no plain name of a file");
    if (slot != 0) return Status(StatusCode::kInvalidArgument, "there is no such slot");
    return std::uint64_t{7};
  }
  Result<std::uint64_t> restore_slot(std::uint32_t slot, const std::string& name) override {
    if (name == "absent") return Status(StatusCode::kNotFound, "there is no such file");
    return save_slot(slot, name);
  }
  Result<std::uint64_t> erase_slot(std::uint32_t slot) override { return save_slot(slot, "any"); }
  HotState hot_state() const override {
    return {.is_active = true, .is_counting = true, .update_rate = 0.25, .experts = 5};
  }
  Result<HotExchanged> apply_hot_profile(const std::string& json) override {
    MOE_RETURN_IF_ERROR(
        parse_profile_json(json, "the profile", {.num_layers = 4, .num_experts = 16}).status());
    return HotExchanged{.is_active = true,
                        .rate = 1,
                        .candidates = 3,
                        .most = 5,
                        .exchanged = 3,
                        .experts = 5,
                        .layers = 2};
  }
  Result<std::string> lane_report() override { return no_lane_report_text(); }
  Status count_lanes(bool /*is_counting*/) override { return Status::ok(); }

 private:
  Started start_any(Request request, AnswerSink sink) {
    const std::string text = last_text(request);
    for (const OrderedJson& answer : script_.value("answers", OrderedJson::array())) {
      if (text.find(answer.value("match", std::string())) == std::string::npos) continue;
      if (answer.contains("refuse")) return read_refusal(answer["refuse"]);
      return play(std::move(request), answer, std::move(sink));
    }
    return Refusal{.kind = Refusal::Kind::kInvalid,
                   .message = "the script has no answer to this",
                   .parameter = "messages"};
  }
  std::unique_ptr<RunningAnswer> play(Request request, const OrderedJson& answer, AnswerSink sink) {
    auto cancel = std::make_shared<Cancellation>();
    const std::lock_guard lock(mutex_);
    cancellations_.push_back(cancel);
    ++playing_;
    std::thread([this,
                 player = std::make_shared<Player>(std::move(request), answer, std::move(sink),
                                                   cancel, counters_)]() mutable {
      player->play();
      player.reset();
      const std::lock_guard ending(mutex_);
      --playing_;
      ended_.notify_all();
    }).detach();
    return std::make_unique<ScriptedAnswer>(std::move(cancel));
  }

  const OrderedJson script_;
  const std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t playing_ = 0;                                   // under mutex_
  std::vector<std::shared_ptr<Cancellation>> cancellations_;  // under mutex_
};

}  // namespace

std::unique_ptr<AnswerService> make_scripted_service(OrderedJson script) {
  return std::make_unique<ScriptedService>(std::move(script));
}

}  // namespace moepack::test
