#include "runtime/service/model_service.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "formats/base/paths.h"
#include "runtime/chat/chat_template.h"
#include "runtime/constrain/constraint.h"
#include "runtime/hot_profile.h"
#include "runtime/service/answer_grammar.h"
#include "runtime/service/answer_stream.h"
#include "runtime/service/call_ids.h"
#include "runtime/service/call_memory.h"
#include "runtime/service/chat_prompt.h"
#include "runtime/service/model_sampling.h"
#include "runtime/service/prompt_room.h"
#include "runtime/service/stop_tokens.h"

namespace moepack {
namespace {

std::shared_ptr<const std::unordered_set<std::string>> ids_of_calls(
    std::span<const ChatMessage> messages) {
  std::unordered_set<std::string> ids;
  for (const ChatMessage& message : messages) {
    for (const ToolCall& call : message.calls) ids.insert(call.id);
  }
  return std::make_shared<const std::unordered_set<std::string>>(std::move(ids));
}

// Clients wait so long before they try again when the queue is full.
constexpr std::uint32_t kRetrySeconds = 5;

Refusal invalid_request_refusal(std::string message, std::string parameter = {}) {
  Refusal refusal;
  refusal.message = std::move(message);
  refusal.parameter = std::move(parameter);
  return refusal;
}

Refusal no_template_refusal() {
  return invalid_request_refusal(
      "the model has no chat template, so it only completes texts: ask /v1/completions, or start "
      "the server with --chat-template-file");
}

class TicketAnswer final : public RunningAnswer {
 public:
  explicit TicketAnswer(std::unique_ptr<TextTicket> ticket) : ticket_(std::move(ticket)) {}
  ~TicketAnswer() override { ticket_->cancel(); }
  void cancel() override { ticket_->cancel(); }

 private:
  std::unique_ptr<TextTicket> ticket_;
};

class RealModelService final : public ModelService {
 public:
  RealModelService(std::unique_ptr<Engine> engine, Tokenizer tokenizer,
                   const ModelServiceOptions& options)
      : options_(options),
        engine_(std::move(engine)),
        tokenizer_(std::move(tokenizer)),
        calls_(options.remembered_calls, options.remembered_bytes),
        texts_(options.remembered_bytes) {}

  Status open();

  Started start(const ChatRequest& request, AnswerSink sink) override;
  Started start(const CompletionRequest& request, AnswerSink sink) override;
  std::variant<RenderedPrompt, Refusal> render(const ChatRequest& request) const override;
  std::variant<std::vector<std::int32_t>, Refusal> tokenize(
      std::string_view text, const TextReading& reading) const override;
  std::string token_bytes(std::int32_t id) const override {
    return std::string(tokenizer_.bytes(id));
  }
  std::string detokenize(const std::vector<std::int32_t>& ids) const override {
    return tokenizer_.decode(ids);
  }
  ServiceModel model() const override { return model_; }
  SamplerOptions sampling_defaults() const override { return sampling_; }
  ServiceStats stats() const override;
  std::vector<SlotState> slots() const override;
  ExpertMap expert_map() const override;
  Result<std::uint64_t> save_slot(std::uint32_t slot, const std::string& name) override {
    return scheduler_->save_slot(slot, name);
  }
  Result<std::uint64_t> restore_slot(std::uint32_t slot, const std::string& name) override {
    return scheduler_->restore_slot(slot, name);
  }
  Result<std::uint64_t> erase_slot(std::uint32_t slot) override {
    return scheduler_->erase_slot(slot);
  }
  HotState hot_state() const override;
  Result<HotExchanged> apply_hot_profile(const std::string& json) override;
  Result<std::string> lane_report() override;
  Status count_lanes(bool is_counting) override;
  Status finish(double grace_seconds) override {
    scheduler_->finish(grace_seconds);
    return engine_->finish();  // the scheduler's thread has ended
  }
  const Engine& engine() const override { return *engine_; }

 private:
  Status open_template();
  void describe();
  std::size_t vocabulary() const;
  ToolFormat tool_format() const;
  std::shared_ptr<const TokenBytes> token_table() const;
  void warn(const std::vector<std::string>& lines) const;

  // What is wrong with a prompt of so many tokens, if anything is.
  std::optional<Refusal> check_prompt(std::size_t tokens) const;
  OutputParserOptions parser_options(const ChatRequest& request, bool is_in_reasoning) const;
  void limit(const AnswerOptions& asked, TextJob& job) const;
  std::variant<TextJob, Refusal> make_job(std::vector<std::int32_t> prompt,
                                          const AnswerOptions& options) const;
  Started submit(TextJob job, const AnswerStreamOptions& stream, AnswerSink sink);
  std::variant<std::vector<std::int32_t>, Refusal> completion_prompt(
      const CompletionRequest& request) const;
  // How many of the prompt's ids stand before the text that the client wrote.
  std::size_t unwritten_ids(const CompletionRequest& request,
                            const std::vector<std::int32_t>& ids) const;
  // What is wrong with an answer that has `begun` in the prompt, if anything is.
  std::optional<Refusal> refuse_begun(const ChatRequest& request,
                                      const std::shared_ptr<const Grammar>& grammar,
                                      std::string_view begun) const;
  // Without `prompt` the text has the form from its start, of which `begun` is there already.
  void set_filter(const std::shared_ptr<const Grammar>& grammar, const ChatPrompt* prompt,
                  std::string_view begun, TextJob& job) const;

  ModelServiceOptions options_;
  std::unique_ptr<Engine> engine_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
  std::vector<std::int32_t> stop_ids_;
  std::vector<std::string> added_tokens_;
  std::vector<std::int32_t> end_of_thinking_;
  SamplerOptions sampling_;
  ServiceModel model_;
  mutable CallMemory calls_;  // what is used last lives longest
  mutable SampledTexts texts_;
  CallIds call_ids_;
  PromptRoom room_;
  mutable std::once_flag table_once_;
  mutable std::shared_ptr<const TokenBytes> table_;
  std::unique_ptr<Scheduler> scheduler_;  // last: it ends before what its listeners use
};

std::size_t RealModelService::vocabulary() const {
  return static_cast<std::size_t>(
      std::min<std::int64_t>(tokenizer_.size(), engine_->config().vocab_size));
}

ToolFormat RealModelService::tool_format() const {
  if (options_.tool_format.has_value()) return *options_.tool_format;
  return template_.has_value() ? template_->facts().format : ToolFormat::kNone;
}

// It takes a while and some memory, and many services are never asked for a form.
std::shared_ptr<const TokenBytes> RealModelService::token_table() const {
  std::call_once(table_once_,
                 [&] { table_ = make_token_bytes(tokenizer_, vocabulary(), stop_ids_); });
  return table_;
}

void RealModelService::warn(const std::vector<std::string>& lines) const {
  if (!options_.on_notice) return;
  for (const std::string& line : lines) options_.on_notice(line);
}

Status RealModelService::open_template() {
  Result<ChatTemplate> opened =
      ChatTemplate::load(options_.model, tokenizer_, options_.chat_template);
  if (opened.is_ok()) {
    template_ = std::move(opened).value();
    return Status::ok();
  }
  // A model without a template still completes texts.
  const bool is_absent = opened.status().code() == StatusCode::kNotFound;
  return is_absent && options_.chat_template.empty() ? Status::ok() : opened.status();
}

void RealModelService::describe() {
  const ModelConfig& config = engine_->config();
  model_.id = options_.id.empty() ? directory_name(options_.model) : options_.id;
  model_.context = engine_->context();
  model_.trained_context = config.max_position_embeddings;
  model_.vocabulary = config.vocab_size;
  model_.parameters = engine_->model_size().parameters;
  model_.file_bytes = engine_->model_size().bytes;
  model_.parallel = options_.scheduler.parallel;
  model_.can_call_tools = tool_format() != ToolFormat::kNone;
  if (!template_.has_value()) return;
  model_.chat_template = template_->source();
  model_.bos_token = template_->bos_token();
  model_.eos_token = template_->eos_token();
  model_.can_think = !template_->facts().reasoning_begin.empty();
}

Status RealModelService::open() {
  MOE_RETURN_IF_ERROR(open_template());
  const std::string source = template_.has_value() ? template_->source() : std::string();
  MOE_ASSIGN_OR_RETURN(stop_ids_,
                       turn_end_ids(options_.model, engine_->config(), tokenizer_, source));
  MOE_ASSIGN_OR_RETURN(sampling_, model_sampling(options_.model));
  for (std::int32_t id = 0; id < tokenizer_.size(); ++id) {
    const std::string_view bytes = tokenizer_.bytes(id);
    if (!bytes.empty() && tokenizer_.added_token(bytes) == id) added_tokens_.emplace_back(bytes);
  }
  if (template_.has_value() && !template_->facts().reasoning_end.empty()) {
    MOE_ASSIGN_OR_RETURN(end_of_thinking_,
                         tokenizer_.encode("\n" + template_->facts().reasoning_end + "\n\n"));
  }
  describe();
  room_ = PromptRoom(tokenizer_, engine_->context());
  MOE_ASSIGN_OR_RETURN(scheduler_, Scheduler::start(*engine_, options_.scheduler));
  return Status::ok();
}

std::optional<Refusal> RealModelService::check_prompt(std::size_t tokens) const {
  if (tokens == 0) return invalid_request_refusal("the prompt is empty", "prompt");
  return room_.refuse_tokens(tokens);
}

void RealModelService::limit(const AnswerOptions& asked, TextJob& job) const {
  job.has_limit = asked.max_tokens.has_value();
  job.max_tokens = asked.max_tokens.value_or(0);
}

std::variant<TextJob, Refusal> RealModelService::make_job(std::vector<std::int32_t> prompt,
                                                          const AnswerOptions& options) const {
  if (auto refusal = check_prompt(prompt.size())) return *std::move(refusal);
  const Result<Sampler> sampler = Sampler::create(options.sampling, vocabulary());
  if (!sampler.is_ok()) return refusal_of(sampler.status());
  TextJob job;
  job.prompt = std::move(prompt);
  limit(options, job);
  if (!options.ignores_end) job.stop_ids = stop_ids_;
  job.sampling = options.sampling;
  job.choices = options.choices;
  job.reuses_states = options.reuses_states;
  job.top_logprobs = options.top_logprobs;
  return job;
}

void RealModelService::set_filter(const std::shared_ptr<const Grammar>& grammar,
                                  const ChatPrompt* prompt, std::string_view begun,
                                  TextJob& job) const {
  if (grammar == nullptr) return;
  const bool opens = prompt != nullptr && prompt->may_open_reasoning;
  const bool thinks = opens || (prompt != nullptr && prompt->is_in_reasoning);
  const TemplateFacts facts = template_.has_value() ? template_->facts() : TemplateFacts();
  job.make_filter = [grammar, table = token_table(), begin = opens ? facts.reasoning_begin : "",
                     end = thinks ? facts.reasoning_end : "", begun = std::string(begun)] {
    return make_constraint(grammar, table, end, begin, begun);
  };
}

OutputParserOptions RealModelService::parser_options(const ChatRequest& request,
                                                     bool is_in_reasoning) const {
  const TemplateFacts& facts = template_->facts();
  OutputParserOptions parser;
  parser.format = tool_format();
  parser.begins_in_reasoning = is_in_reasoning;
  parser.parses_calls =
      !request.conversation.tools.empty() && request.tool_choice.kind != ToolChoice::Kind::kNone;
  parser.tools = request.conversation.tools;
  for (ToolSpec& tool : parser.tools) tool.wire = nullptr;  // the template's alone
  parser.reasoning_begin = facts.reasoning_begin;
  parser.reasoning_end = facts.reasoning_end;
  parser.added_tokens = added_tokens_;
  return parser;
}

AnswerService::Started RealModelService::submit(TextJob job, const AnswerStreamOptions& stream,
                                                AnswerSink sink) {
  std::vector<std::shared_ptr<TextListener>> listeners;
  for (std::uint32_t choice = 0; choice < job.choices; ++choice) {
    AnswerStreamOptions options = stream;
    options.choice = choice;
    listeners.push_back(std::make_shared<AnswerStream>(std::move(options), sink));
  }
  std::unique_ptr<TextTicket> ticket = scheduler_->submit(std::move(job), std::move(listeners));
  if (ticket != nullptr) return std::make_unique<TicketAnswer>(std::move(ticket));
  Refusal refusal;
  if (scheduler_->is_ending()) {
    refusal.kind = Refusal::Kind::kEnding;
    refusal.message = "the server is shutting down";
    return refusal;
  }
  refusal.kind = Refusal::Kind::kBusy;
  refusal.message = "too many requests wait already";
  refusal.retry_seconds = kRetrySeconds;
  return refusal;
}

std::optional<Refusal> RealModelService::refuse_begun(const ChatRequest& request,
                                                      const std::shared_ptr<const Grammar>& grammar,
                                                      std::string_view begun) const {
  if (begun.empty() || grammar == nullptr) return std::nullopt;
  // The text of a message is no mark of a call, and the call is read from what is generated.
  if (request.tool_choice.kind == ToolChoice::Kind::kRequired) {
    return invalid_request_refusal(
        "tool_choice asks for a call, and none goes on from the text of the assistant's message at "
        "the end of messages: leave out one of the two",
        "messages");
  }
  if (may_begin_with(*grammar, *token_table(), begun)) return std::nullopt;
  return invalid_request_refusal(
      "no answer of the requested form begins with the assistant's last message: leave it out, "
      "or let it begin such an answer",
      "messages");
}

AnswerService::Started RealModelService::start(const ChatRequest& request, AnswerSink sink) {
  if (!template_.has_value()) return no_template_refusal();
  std::vector<std::string> warnings;
  const auto grammar = answer_grammar(request, tool_format(), &warnings);
  if (!grammar.is_ok()) return refusal_of(grammar.status());
  warn(warnings);
  const std::string_view begun = begun_form(request, template_->facts());
  if (auto refusal = refuse_begun(request, grammar.value(), begun)) return *std::move(refusal);
  auto prompt =
      make_chat_prompt(*template_, tool_format(), tokenizer_, request, calls_, texts_, room_);
  if (auto* refusal = std::get_if<Refusal>(&prompt)) return std::move(*refusal);
  const auto shared = std::make_shared<ChatPrompt>(std::move(std::get<ChatPrompt>(prompt)));
  ChatPrompt& made = *shared;
  auto job = make_job(made.ids, request.options);
  if (auto* refusal = std::get_if<Refusal>(&job)) return std::move(*refusal);
  TextJob& text = std::get<TextJob>(job);
  text.snapshots = std::move(made.snapshots);
  const bool is_required = request.tool_choice.kind == ToolChoice::Kind::kRequired ||
                           request.format.kind != ResponseFormat::Kind::kText;
  set_filter(grammar.value(), is_required ? &made : nullptr, begun, text);
  AnswerStreamOptions stream;
  stream.tokenizer = &tokenizer_;
  stream.calls = &calls_;
  const std::span<const ChatMessage> messages = request.conversation.messages;
  const bool is_begun = request.conversation.continues_last && !messages.empty();
  stream.call_scope = conversation_scope(messages.first(messages.size() - (is_begun ? 1 : 0)));
  stream.known_ids = ids_of_calls(messages);
  stream.parser = parser_options(request, made.is_in_reasoning);
  stream.stop = request.options.stop;
  stream.wants_logprobs = request.options.top_logprobs.has_value();
  stream.is_parallel = request.tool_choice.is_parallel;
  stream.thinking_budget = request.thinking_budget;
  stream.end_of_thinking = end_of_thinking_;
  stream.make_call_id = [this] { return call_ids_.next(); };
  stream.on_sampled = [this, shared](const std::vector<std::int32_t>& ids) {
    texts_.remember(tokenizer_, shared->text, shared->ids, ids);
  };
  return submit(std::move(text), stream, std::move(sink));
}

// Prefix, suffix and the place between them, for models that were taught to fill gaps.
std::variant<std::vector<std::int32_t>, Refusal> RealModelService::completion_prompt(
    const CompletionRequest& request) const {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&request.prompt)) {
    for (const std::int32_t id : *ids) {
      if (id >= 0 && static_cast<std::size_t>(id) < engine_->config().vocab_size) continue;
      return invalid_request_refusal(
          "the prompt has the id " + std::to_string(id) + ", which the vocabulary lacks", "prompt");
    }
    return *ids;
  }
  const std::string& text = std::get<std::string>(request.prompt);
  if (auto refusal = room_.refuse_bytes(text.size() + request.suffix.size())) {
    return *std::move(refusal);
  }
  if (request.suffix.empty()) return tokenize(text, {.begins_text = true});
  if (tokenizer_.added_token("<|fim_prefix|>") < 0) {
    return invalid_request_refusal("this model does not fill gaps: it knows no suffix", "suffix");
  }
  return tokenize("<|fim_prefix|>" + text + "<|fim_suffix|>" + request.suffix + "<|fim_middle|>",
                  {.begins_text = true});
}

std::size_t RealModelService::unwritten_ids(const CompletionRequest& request,
                                            const std::vector<std::int32_t>& ids) const {
  const auto begin = tokenizer_.begin_of_text();
  const auto* text = std::get_if<std::string>(&request.prompt);
  if (text == nullptr || begin.empty() || ids.size() < begin.size()) return 0;
  return text->starts_with(tokenizer_.bytes(begin.front())) ? 0 : begin.size();
}

AnswerService::Started RealModelService::start(const CompletionRequest& request, AnswerSink sink) {
  auto prompt = completion_prompt(request);
  if (auto* refusal = std::get_if<Refusal>(&prompt)) return std::move(*refusal);
  std::vector<std::int32_t>& ids = std::get<std::vector<std::int32_t>>(prompt);
  std::vector<std::string> warnings;
  const auto grammar = format_grammar(request.format, &warnings);
  if (!grammar.is_ok()) return refusal_of(grammar.status());
  warn(warnings);
  AnswerStreamOptions stream;
  stream.tokenizer = &tokenizer_;
  stream.parser.parses_reasoning = false;
  stream.stop = request.options.stop;
  stream.wants_logprobs = request.options.top_logprobs.has_value();
  if (request.echo) stream.echoed = ids;
  stream.unwritten = unwritten_ids(request, ids);
  auto job = make_job(std::move(ids), request.options);
  if (auto* refusal = std::get_if<Refusal>(&job)) return std::move(*refusal);
  TextJob& text = std::get<TextJob>(job);
  text.prompt_logprobs = request.echo && stream.wants_logprobs;
  // Programs that score a prompt ask for one token more and drop the last one they get: where it
  // ends the text it is told too, or they would drop one of the prompt.
  if (text.prompt_logprobs && text.has_limit && text.max_tokens == 1) text.stop_ids.clear();
  set_filter(grammar.value(), nullptr, {}, text);
  return submit(std::move(text), stream, std::move(sink));
}

std::variant<RenderedPrompt, Refusal> RealModelService::render(const ChatRequest& request) const {
  if (!template_.has_value()) return no_template_refusal();
  Result<PromptText> text = chat_text(*template_, tool_format(), request, calls_);
  if (!text.is_ok()) return rendering_refusal(text.status());
  if (auto refusal = room_.refuse_told(text.value().text.size())) return *std::move(refusal);
  Result<std::vector<std::int32_t>> ids = chat_ids(tokenizer_, request, text.value(), texts_);
  if (!ids.is_ok()) return refusal_of(ids.status());
  return RenderedPrompt{.text = std::move(text).value(), .ids = std::move(ids).value()};
}

std::variant<std::vector<std::int32_t>, Refusal> RealModelService::tokenize(
    std::string_view text, const TextReading& reading) const {
  if (auto refusal = room_.refuse_told(text.size())) return *std::move(refusal);
  PromptText prompt{.text = std::string(text), .from_user = {}};
  if (!reading.with_markers && !text.empty()) prompt.from_user.push_back({0, text.size()});
  Result<std::vector<std::int32_t>> ids = encode_prompt(tokenizer_, prompt);
  if (!ids.is_ok()) return refusal_of(ids.status());
  if (reading.begins_text) tokenizer_.begin_text(ids.value());
  return std::move(ids).value();
}

ServiceStats RealModelService::stats() const {
  const SchedulerStats s = scheduler_->stats();
  return {.requests_running = s.running,
          .requests_waiting = s.waiting,
          .prompt_tokens = s.prompt_tokens,
          .cached_tokens = s.cached_tokens,
          .answer_tokens = s.answer_tokens,
          .decode_tokens = s.decode_tokens,
          .decode_steps = s.decode_steps,
          .prompt_seconds = s.prompt_seconds,
          .decode_seconds = s.decode_seconds,
          .expert_hits = s.experts.hits,
          .expert_misses = s.experts.misses,
          .expert_bytes_read = s.experts.bytes_read,
          .read_seconds = s.experts.read_seconds,
          .snapshots = s.snapshots,
          .snapshot_bytes = s.snapshot_bytes,
          .snapshot_restores = s.snapshot_restores,
          .kv_tokens = s.kv_tokens,
          .kv_capacity = s.kv_capacity};
}

std::vector<SlotState> RealModelService::slots() const {
  std::vector<SlotState> states;
  for (const SlotView& slot : scheduler_->slots()) {
    states.push_back({.id = slot.id,
                      .is_processing = slot.is_processing,
                      .prompt_tokens = slot.prompt_tokens,
                      .prompt_done = slot.prompt_done,
                      .cached_tokens = slot.cached_tokens,
                      .decoded = slot.decoded,
                      .remaining = slot.remaining});
  }
  return states;
}

HotState RealModelService::hot_state() const {
  const std::optional<DeviceUse>& device = engine_->device_use();
  const bool is_active =
      device.has_value() && device->cold == ColdExperts::kCpu && !device->plan.holds_all_experts();
  HotState hot{.is_active = is_active};
  if (!is_active) return hot;
  hot.update_rate = engine_->options().hot.update_rate;
  hot.experts = device->hot.slots;
  (void)scheduler_->run_between([&](Engine& engine) {
    hot.is_counting = engine.lane_use().has_value();
    return Status::ok();
  });
  return hot;
}

Result<HotExchanged> RealModelService::apply_hot_profile(const std::string& json) {
  HotExchanged done;
  MOE_RETURN_IF_ERROR(scheduler_->run_between([&](Engine& engine) -> Status {
    MOE_ASSIGN_OR_RETURN(const HotChange change, engine.apply_hot_profile(json, "the profile"));
    done = {.is_active = change.is_active,
            .rate = change.rate,
            .candidates = change.candidates,
            .most = change.most,
            .exchanged = change.exchanged,
            .experts = change.hot,
            .layers = change.layers};
    return Status::ok();
  }));
  return done;
}

Result<std::string> RealModelService::lane_report() {
  std::string report;
  MOE_RETURN_IF_ERROR(scheduler_->run_between([&](Engine& engine) {
    report = engine_lane_report(engine);
    return Status::ok();
  }));
  return report;
}

Status RealModelService::count_lanes(bool is_counting) {
  return scheduler_->run_between([&](Engine& engine) {
    engine.count_lanes(false);
    engine.count_lanes(is_counting);
    if (!is_counting || engine.lane_use().has_value()) return Status::ok();
    return unsupported(Where{}, "no GPU keeps experts here while the processor computes the others",
                       "start with --backend vulkan --cold-experts cpu");
  });
}

ExpertMap RealModelService::expert_map() const {
  ExpertUsageMap usage = engine_->expert_usage();
  ExpertMap map;
  map.layers = usage.layers;
  map.experts = usage.experts;
  map.warmth = std::move(usage.warmth);
  map.is_resident.assign(usage.is_resident.begin(), usage.is_resident.end());
  return map;
}

}  // namespace

Result<std::unique_ptr<ModelService>> ModelService::open(std::unique_ptr<Engine> engine,
                                                         Tokenizer tokenizer,
                                                         const ModelServiceOptions& options) {
  auto service =
      std::make_unique<RealModelService>(std::move(engine), std::move(tokenizer), options);
  MOE_RETURN_IF_ERROR(service->open());
  return std::unique_ptr<ModelService>(std::move(service));
}

}  // namespace moepack
