#include "runtime/serve/lane_routes.h"

#include <utility>

#include "runtime/serve/body_fields.h"

namespace moepack {
namespace {

using LaneReply = std::variant<HttpReply, ApiError>;

// What a profile says that cannot be used is the request's fault, whatever is wrong with it.
ApiError lane_error(const Status& status, bool is_of_body) {
  ApiErrorKind kind = ApiErrorKind::kServer;
  const StatusCode code = status.code();
  if (code == StatusCode::kUnsupported && !is_of_body) kind = ApiErrorKind::kNotSupported;
  if (code == StatusCode::kInvalidArgument || (code == StatusCode::kCorrupt && is_of_body) ||
      (code == StatusCode::kUnsupported && is_of_body)) {
    kind = ApiErrorKind::kInvalidRequest;
  }
  return {.kind = kind, .message = status.message(), .should_retry = false};
}

LaneReply reply_hot_state(const RouteCall& call) {
  const HotState hot = call.service.hot_state();
  OrderedJson json = OrderedJson::object();
  json["active"] = hot.is_active;
  json["update_rate"] = hot.update_rate;
  json["hot_experts"] = hot.experts;
  json["counts"] = hot.is_counting;
  return json_reply(json);
}

LaneReply reply_apply(const RouteCall& call) {
  OrderedJson profile = call.json;
  if (const auto saves = profile.find("save_to_disk"); saves != profile.end()) {
    if (!saves->is_boolean()) return invalid_request("must be true or false", "save_to_disk");
    if (saves->get<bool>()) {
      return invalid_request("this server writes no profiles; keep the body of GET /moe-layer-perf",
                             "save_to_disk");
    }
    profile.erase("save_to_disk");
  }
  const Result<HotExchanged> done = call.service.apply_hot_profile(profile.dump());
  if (!done.is_ok()) return lane_error(done.status(), true);
  const HotExchanged& change = done.value();
  OrderedJson json = OrderedJson::object();
  json["success"] = true;
  json["active"] = change.is_active;
  json["update_rate"] = change.rate;
  json["exchanged"] = change.exchanged;
  json["candidates"] = change.candidates;
  json["max_exchange"] = change.most;
  json["hot_experts"] = change.experts;
  json["layers_changed"] = change.layers;
  return json_reply(json);
}

LaneReply reply_report(const RouteCall& call) {
  Result<std::string> report = call.service.lane_report();
  if (!report.is_ok()) return lane_error(report.status(), false);
  HttpReply reply{.headers = {{"Content-Type", "application/json"}}};
  reply.body = std::move(report).value();
  return reply;
}

LaneReply reply_mode(const RouteCall& call) {
  RequestFault fault;
  const BodyFields request(call.json, "", fault);
  const std::string mode = request.text("mode").value_or("");
  if (mode != "full" && mode != "update" && mode != "off") {
    request.fail("mode", "mode must be full, update or off");
  }
  if (fault.is_set()) return *fault.error();
  const Status set = call.service.count_lanes(mode != "off");
  if (!set.is_ok()) return lane_error(set, false);
  OrderedJson json = OrderedJson::object();
  json["success"] = true;
  json["mode"] = mode;
  return json_reply(json);
}

}  // namespace

void add_lane_routes(RouteTable& table) {
  const auto add = [&table](const char* method, const char* path,
                            LaneReply (*handler)(const RouteCall&)) {
    table.add({.method = method, .path = path, .handler = PlainHandler(handler), .is_slow = true});
  };
  add("GET", "/moe-hot-cache", reply_hot_state);
  add("POST", "/moe-hot-cache", reply_apply);
  add("GET", "/moe-layer-perf", reply_report);
  add("POST", "/moe-layer-perf", reply_mode);
}

}  // namespace moepack
