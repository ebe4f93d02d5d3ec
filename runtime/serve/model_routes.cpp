#include <array>
#include <ctime>
#include <utility>

#include "runtime/serve/server_state.h"

namespace moepack {
namespace {

std::string iso_time(std::int64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

// What the clients of several protocols read of a model, in one object.
OrderedJson model_json(const ServiceModel& model, std::int64_t started) {
  OrderedJson json = OrderedJson::object();
  json["id"] = model.id;
  json["object"] = "model";
  json["created"] = started;
  json["owned_by"] = "moepack";
  json["type"] = "model";
  json["display_name"] = model.id;
  json["created_at"] = iso_time(started);
  json["lifecycle"] = "active";
  json["max_input_tokens"] = model.context;
  json["max_tokens"] = model.context;
  json["context_length"] = model.context;
  json["max_model_len"] = model.context;
  OrderedJson meta = OrderedJson::object();
  meta["n_ctx_train"] = model.trained_context;
  meta["n_ctx"] = model.context;
  meta["n_vocab"] = model.vocabulary;
  meta["n_params"] = model.parameters;
  meta["size"] = model.file_bytes;
  meta["has_chat_template"] = !model.chat_template.empty();
  json["meta"] = std::move(meta);
  return json;
}

OrderedJson model_list(const ServiceModel& model, std::int64_t started) {
  OrderedJson json = OrderedJson::object();
  json["object"] = "list";
  json["data"] = OrderedJson::array({model_json(model, started)});
  json["has_more"] = false;
  json["first_id"] = model.id;
  json["last_id"] = model.id;
  return json;
}

}  // namespace

void add_model_routes(RouteTable& table, ServerState& state) {
  table.add({.method = "GET",
             .path = "/models",
             .handler = PlainHandler([&state](const RouteCall& call) {
               return json_reply(model_list(call.model, state.started));
             }),
             .is_free = true});
  table.add({.method = "GET",
             .path = "/models/*",
             .handler =
                 PlainHandler([&state](const RouteCall& call) -> std::variant<HttpReply, ApiError> {
                   if (call.rest == call.model.id) {
                     return json_reply(model_json(call.model, state.started));
                   }
                   return ApiError{.kind = ApiErrorKind::kNotFound,
                                   .message = "the model " + printable(call.rest) +
                                              " does not exist; this server has " + call.model.id,
                                   .parameter = "model"};
                 }),
             .is_free = true});
}

}  // namespace moepack
