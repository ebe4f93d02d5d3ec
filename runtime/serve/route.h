// Paths of the server and what answers them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/http/http_message.h"
#include "runtime/serve/answer_writer.h"
#include "runtime/serve/api_error.h"
#include "runtime/service/answer_service.h"

namespace moepack {

// A request as routes see it: key, host and limits are checked. Everything outlives the call of the
// handler only if it is copied.
struct RouteCall {
  const HttpRequest& http;
  std::string path;                          // without query, percent-decoded, without "/v1"
  std::string rest;                          // of a path that ends in "/*": what stands for the *
  std::map<std::string, std::string> query;  // percent-decoded
  OrderedJson json;                          // the body, of a route that takes JSON; an object
  std::string request_id;                    // unique; also makes ids of answers
  std::int64_t unix_seconds = 0;             // when it came: the "created" of answers
  AnswerService& service;
  const ServiceModel& model;
  const AnswerOptions& defaults;  // of what a request does not say; the seed is a new one
};

// Handlers run in a worker, several at once: they may compute for a while but never wait for the
// model. What they throw becomes a 500 without its words.
using PlainHandler = std::function<std::variant<HttpReply, ApiError>(const RouteCall& call)>;
using AnswerHandler = std::function<std::variant<AnswerJob, ApiError>(const RouteCall& call)>;

struct Route {
  std::string method;  // "GET" (answers HEAD too), "POST", "DELETE"
  std::string path;    // "/messages": without "/v1", which clients may write or not; "/models/*"
  std::variant<PlainHandler, AnswerHandler> handler;
  ErrorFormat errors = openai_error_body;
  bool is_free = false;              // needs no API key
  bool works_while_loading = false;  // with a service that refuses; else 503
  bool is_slow = false;              // a plain handler that waits: calls of such come one by one
};

// Routes in the order of their addition; the first that fits answers. A POST takes JSON.
class RouteTable {
 public:
  void add(Route route) { routes_.push_back(std::move(route)); }
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
};

// "application/json" and the text.
HttpReply json_reply(const OrderedJson& json, int status = 200);

}  // namespace moepack
