#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "runtime/serve/body_fields.h"
#include "runtime/serve/openai_parts.h"
#include "runtime/serve/server_state.h"
#include "runtime/serve/server_version.h"

namespace moepack {
namespace {

using StatusReply = std::variant<HttpReply, ApiError>;

ApiError not_supported(const std::string& what) {
  return {.kind = ApiErrorKind::kNotSupported, .message = what, .should_retry = false};
}

StatusReply reply_health(const ServerState& state) {
  if (state.is_loading) {
    return ApiError{.kind = ApiErrorKind::kUnavailable,
                    .message = "Loading model",
                    .retry_seconds = kRetrySeconds};
  }
  if (state.is_ending) {
    return ApiError{.kind = ApiErrorKind::kUnavailable, .message = "the server ends"};
  }
  OrderedJson json = OrderedJson::object();
  json["status"] = "ok";
  return json_reply(json);
}

StatusReply reply_metrics(const RouteCall& call, const ServerState& state) {
  if (!state.options.shows_metrics) {
    return not_supported("this server was started with --no-metrics");
  }
  HttpReply reply{.headers = {{"Content-Type", "text/plain; version=0.0.4"}}};
  reply.body = state.metrics.text(call.service.stats(), state.http_stats());
  return reply;
}

// 0.8 and not 0.800000011920929.
double short_number(float value) {
  std::array<char, 32> text{};
  const int size = std::snprintf(text.data(), text.size(), "%.6g", static_cast<double>(value));
  double read = 0;
  (void)std::from_chars(text.data(), text.data() + size, read);
  return read;
}

OrderedJson default_parameters(const AnswerOptions& defaults) {
  const SamplerOptions& sampling = defaults.sampling;
  OrderedJson json = OrderedJson::object();
  json["temperature"] = short_number(sampling.temperature);
  json["top_k"] = sampling.top_k;
  json["top_p"] = short_number(sampling.top_p);
  json["min_p"] = short_number(sampling.min_p);
  json["typical_p"] = short_number(sampling.typical_p);
  json["repeat_penalty"] = short_number(sampling.repetition_penalty);
  json["repeat_last_n"] = sampling.repeat_last_n;
  json["frequency_penalty"] = short_number(sampling.frequency_penalty);
  json["presence_penalty"] = short_number(sampling.presence_penalty);
  json["n_predict"] =
      defaults.max_tokens.has_value() ? OrderedJson(*defaults.max_tokens) : OrderedJson(-1);
  return json;
}

StatusReply reply_props(const RouteCall& call, const ServerState& state) {
  const ServiceModel& model = call.model;
  OrderedJson settings = OrderedJson::object();
  settings["n_ctx"] = model.context;
  settings["params"] = default_parameters(call.defaults);
  OrderedJson json = OrderedJson::object();
  json["default_generation_settings"] = std::move(settings);
  json["total_slots"] = model.parallel;
  json["model_alias"] = model.id;
  json["model_path"] = state.options.model_path;
  json["modalities"]["vision"] = false;
  json["modalities"]["audio"] = false;
  json["chat_template"] = model.chat_template;
  json["has_chat_template"] = !model.chat_template.empty();
  json["chat_template_caps"]["supports_tools"] = model.can_call_tools;
  json["chat_template_caps"]["supports_thinking"] = model.can_think;
  json["bos_token"] = model.bos_token;
  json["eos_token"] = model.eos_token;
  json["build_info"] = std::string("moepack ") + server_version();
  return json_reply(json);
}

StatusReply reply_slots(const RouteCall& call, const ServerState& state) {
  if (!state.options.shows_slots) {
    return not_supported("this server does not show its slots; start it with --slots");
  }
  OrderedJson list = OrderedJson::array();
  bool is_any_free = false;
  for (const SlotState& slot : call.service.slots()) {
    is_any_free = is_any_free || !slot.is_processing;
    OrderedJson json = OrderedJson::object();
    json["id"] = slot.id;
    json["n_ctx"] = call.model.context;
    json["speculative"] = false;
    json["is_processing"] = slot.is_processing;
    json["n_prompt_tokens"] = slot.prompt_tokens;
    json["n_prompt_tokens_processed"] = slot.prompt_done;
    json["n_prompt_tokens_cache"] = slot.cached_tokens;
    OrderedJson next = OrderedJson::object();
    next["has_next_token"] = slot.is_processing;
    next["n_remain"] = slot.remaining;
    next["n_decoded"] = slot.decoded;
    json["next_token"] = OrderedJson::array({std::move(next)});
    list.push_back(std::move(json));
  }
  const auto asks = call.query.find("fail_on_no_slot");
  if (asks != call.query.end() && asks->second == "1" && !is_any_free) {
    return ApiError{
        .kind = ApiErrorKind::kUnavailable, .message = "no slot is free", .retry_seconds = 1};
  }
  return json_reply(list);
}

ApiError slot_error(const Status& status) {
  ApiErrorKind kind = ApiErrorKind::kServer;
  if (status.code() == StatusCode::kUnsupported) kind = ApiErrorKind::kNotSupported;
  if (status.code() == StatusCode::kInvalidArgument) kind = ApiErrorKind::kInvalidRequest;
  if (status.code() == StatusCode::kNotFound) kind = ApiErrorKind::kNotFound;
  return {.kind = kind, .message = status.message(), .should_retry = false};
}

StatusReply file_action(const RouteCall& call, std::uint32_t slot, bool saves) {
  RequestFault fault;
  const BodyFields request(call.json, "", fault);
  const std::string name = request.text("filename").value_or("");
  if (fault.is_set()) return *fault.error();
  const auto begun = std::chrono::steady_clock::now();
  const auto done =
      saves ? call.service.save_slot(slot, name) : call.service.restore_slot(slot, name);
  if (!done.is_ok()) return slot_error(done.status());
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
  OrderedJson json = OrderedJson::object();
  json["id_slot"] = slot;
  json["filename"] = name;
  json[saves ? "n_saved" : "n_restored"] = done.value();
  json["timings"][saves ? "save_ms" : "restore_ms"] = took.count();
  return json_reply(json);
}

StatusReply reply_slot_action(const RouteCall& call) {
  std::uint32_t slot = 0;
  const char* end = call.rest.data() + call.rest.size();
  const auto read = std::from_chars(call.rest.data(), end, slot);
  if (read.ec != std::errc() || read.ptr != end) {
    return invalid_request("a slot is named by its number", "id_slot");
  }
  const auto action = call.query.find("action");
  const std::string name = action == call.query.end() ? "" : action->second;
  if (name == "save" || name == "restore") return file_action(call, slot, name == "save");
  if (name != "erase") return invalid_request("action must be save, restore or erase", "action");
  const Result<std::uint64_t> erased = call.service.erase_slot(slot);
  if (!erased.is_ok()) return slot_error(erased.status());
  OrderedJson json = OrderedJson::object();
  json["id_slot"] = slot;
  json["n_erased"] = erased.value();
  return json_reply(json);
}

void add_absent_routes(RouteTable& table) {
  for (const char* path : {"/infill", "/embedding", "/embeddings", "/rerank", "/reranking",
                           "/lora-adapters", "/audio/transcriptions", "/images/generations"}) {
    table.add({.method = "POST",
               .path = path,
               .handler = PlainHandler([](const RouteCall& call) -> StatusReply {
                 return not_supported(call.path + " is not served by moepack");
               })});
  }
}

}  // namespace

void add_status_routes(RouteTable& table, ServerState& state) {
  const auto add = [&table](const char* path, PlainHandler handler, bool is_free = false) {
    table.add({.method = "GET",
               .path = path,
               .handler = std::move(handler),
               .is_free = is_free,
               .works_while_loading = is_free});
  };
  add(
      "/health", [&state](const RouteCall&) { return reply_health(state); }, true);
  add(
      "/ping", [&state](const RouteCall&) { return reply_health(state); }, true);
  add("/metrics", [&state](const RouteCall& call) { return reply_metrics(call, state); });
  add("/props", [&state](const RouteCall& call) { return reply_props(call, state); });
  add("/slots", [&state](const RouteCall& call) { return reply_slots(call, state); });
  add("/version", [](const RouteCall&) {
    OrderedJson json = OrderedJson::object();
    json["version"] = server_version();
    return json_reply(json);
  });
  table.add({.method = "POST",
             .path = "/slots/*",
             .handler = PlainHandler(reply_slot_action),
             .is_slow = true});
  add_absent_routes(table);
}

}  // namespace moepack
