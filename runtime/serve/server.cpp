#include "runtime/serve/server.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "formats/base/json.h"
#include "runtime/serve/answer_session.h"
#include "runtime/serve/anthropic_routes.h"
#include "runtime/serve/lane_routes.h"
#include "runtime/serve/loading_service.h"
#include "runtime/serve/page.h"
#include "runtime/serve/responses_routes.h"
#include "runtime/serve/router.h"
#include "runtime/serve/server_state.h"
#include "runtime/serve/worker_pool.h"

namespace moepack {
namespace {

using ServeClock = std::chrono::steady_clock;

// Between two looks at the streams that may need a keep-alive.
constexpr std::chrono::milliseconds kPulse{100};

// A request takes some twenty times its body while it is read, rendered and tokenized: larger ones
// than this wait for each other.
constexpr std::size_t kLargeBody = std::size_t{4} << 20U;

std::chrono::duration<double> serve_seconds(double seconds) {
  return std::chrono::duration<double>(seconds);
}

ApiErrorKind http_error_kind(int status) {
  switch (status) {
    case 413:
      return ApiErrorKind::kTooLarge;
    case 500:
      return ApiErrorKind::kServer;
    case 501:
      return ApiErrorKind::kNotSupported;
    case 503:
      return ApiErrorKind::kUnavailable;
    default:
      return ApiErrorKind::kInvalidRequest;
  }
}

RouteTable all_routes(ServerState& state) {
  RouteTable table;
  add_openai_routes(table);
  add_anthropic_routes(table);
  add_responses_routes(table);
  add_text_routes(table);
  add_model_routes(table, state);
  add_status_routes(table, state);
  add_lane_routes(table);
  add_page_routes(table);
  return table;
}

bool is_json_type(const HttpHeaders& headers) {
  const std::string* type = find_header(headers, "Content-Type");
  if (type == nullptr) return true;
  const std::string name = type->substr(0, type->find_first_of("; \t"));
  return equals_header_name(name, "application/json") || name.ends_with("+json");
}

// What the headers say of a body that cannot be read, if they do.
std::optional<std::string> unreadable_body(const HttpHeaders& headers) {
  if (!is_json_type(headers)) return "a body must be JSON: \"Content-Type: application/json\"";
  const std::string* encoding = find_header(headers, "Content-Encoding");
  if (encoding == nullptr || encoding->empty() || equals_header_name(*encoding, "identity")) {
    return std::nullopt;
  }
  return "a body in Content-Encoding \"" + printable(*encoding, 64) +
         "\" is not read here: send it without one";
}

}  // namespace

struct Server::Impl final : HttpHandler {
  explicit Impl(ServerOptions options);

  // HttpHandler
  std::optional<HttpReply> check(const HttpRequest& request) override;
  void handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override;
  HttpReply error(int status, const std::string& message) override;

  std::string new_id();
  HttpHeaders common_headers(const HttpRequest& request, const std::string& id) const;
  HttpReply refuse(const ApiError& error, const HttpRequest& request, ErrorFormat format);
  std::optional<HttpReply> refusal_before_body(const HttpRequest& request);
  void tell(const HttpRequest& request, int status);
  HttpReply preflight(const HttpRequest& request);
  std::optional<ApiError> access_error(const HttpRequest& request) const;
  std::optional<ApiError> route_error(const FoundRoute& found, const HttpRequest& request) const;
  void run(HttpRequest& request, const std::shared_ptr<RequestRecord>& record,
           const std::shared_ptr<ResponseWriter>& writer);
  void answer(const Route& route, RouteCall& call, std::string body,
              const std::shared_ptr<RequestRecord>& record,
              const std::shared_ptr<ResponseWriter>& writer);
  // The body ends here: what it says stands in call.json, and a large one is not kept beside that.
  std::optional<ApiError> read_body(std::string body, RouteCall& call) const;
  void start_session(AnswerJob job, const Route& route, const RouteCall& call,
                     const std::shared_ptr<RequestRecord>& record,
                     const std::shared_ptr<ResponseWriter>& writer);
  AnswerService& service_now(ServiceModel& model);
  AnswerOptions new_defaults(const AnswerService& used);
  void pulse();
  std::vector<std::shared_ptr<AnswerSession>> live_sessions();

  ServerState state;
  const RouteTable table;
  const std::unique_ptr<AnswerService> loading;
  std::atomic<AnswerService*> service{nullptr};

  std::mutex mutex;  // of all below
  std::mt19937_64 random;
  std::vector<std::weak_ptr<AnswerSession>> sessions;
  std::condition_variable changed;
  bool is_stopped = false;

  // In the order in which they must end: what answers last, and what is asked first.
  std::unique_ptr<WorkerPool> workers, slow_worker, large_worker;
  std::unique_ptr<HttpServer> http;
  std::thread pulse_thread;
};

Server::Impl::Impl(ServerOptions options)
    : state{.options = std::move(options)},
      table(all_routes(state)),
      loading(make_loading_service(state.options.model_id)) {
  state.started = std::time(nullptr);
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  random.seed(seed);
}

std::string Server::Impl::new_id() {
  std::array<std::uint64_t, 2> bits{};
  {
    const std::lock_guard lock(mutex);
    bits = {random(), random()};
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (unsigned i = 0; i < 24; ++i) id += kDigits[(bits[i / 16] >> (4 * (i % 16))) & 15U];
  return id;
}

HttpHeaders Server::Impl::common_headers(const HttpRequest& request, const std::string& id) const {
  HttpHeaders headers = cors_headers(state.options.access, request.headers);
  headers.push_back({"x-request-id", id});  // as OpenAI's clients read it
  headers.push_back({"request-id", id});    // and Anthropic's
  headers.push_back({"X-Content-Type-Options", "nosniff"});
  return headers;
}

HttpReply Server::Impl::refuse(const ApiError& error, const HttpRequest& request,
                               ErrorFormat format) {
  const std::string id = new_id();
  state.metrics.add_reply(http_status(error.kind));
  return error_reply(error, format, id, common_headers(request, id));
}

HttpReply Server::Impl::error(int status, const std::string& message) {
  ApiError error{.kind = http_error_kind(status), .message = message};
  if (status == 503) error.retry_seconds = 1;
  HttpReply reply = refuse(error, {}, openai_error_body);
  reply.status = status;
  tell({}, status);
  return reply;
}

HttpReply Server::Impl::preflight(const HttpRequest& request) {
  HttpReply reply{.status = 204, .headers = common_headers(request, new_id())};
  const std::string methods = "GET, HEAD, POST, DELETE, OPTIONS";
  reply.headers.push_back({"Allow", methods});
  if (find_header(reply.headers, "Access-Control-Allow-Origin") == nullptr) return reply;
  const std::string* wanted = find_header(request.headers, "Access-Control-Request-Headers");
  reply.headers.push_back({"Access-Control-Allow-Methods", methods});
  reply.headers.push_back({"Access-Control-Allow-Headers", wanted == nullptr ? "*" : *wanted});
  reply.headers.push_back({"Access-Control-Max-Age", "600"});
  return reply;
}

std::optional<ApiError> Server::Impl::access_error(const HttpRequest& request) const {
  if (!is_known_host(state.options.access, request.headers)) {
    return ApiError{.kind = ApiErrorKind::kPermission,
                    .message =
                        "the name in the Host header is not one of this server's; "
                        "allow it with --allow-host"};
  }
  if (!is_known_origin(state.options.access, request.headers)) {
    return ApiError{.kind = ApiErrorKind::kPermission,
                    .message =
                        "pages of this origin may not use this server; "
                        "allow it with --cors-origins"};
  }
  return std::nullopt;
}

std::optional<ApiError> Server::Impl::route_error(const FoundRoute& found,
                                                  const HttpRequest& request) const {
  const bool is_free = found.route != nullptr && found.route->is_free;
  if (!is_free && !has_valid_key(state.options.access, request.headers)) {
    return ApiError{.kind = ApiErrorKind::kAuthentication,
                    .message = "a valid API key is needed: \"Authorization: Bearer KEY\""};
  }
  if (found.route == nullptr && found.allowed.empty()) {
    return ApiError{.kind = ApiErrorKind::kNotFound,
                    .message = "there is nothing at " + printable(request.target, 200)};
  }
  if (found.route == nullptr) {
    return ApiError{.kind = ApiErrorKind::kMethod,
                    .message = printable(request.method, 20) + " is not answered here, but " +
                               found.allowed + " is"};
  }
  if (found.route->method != "POST") return std::nullopt;
  if (auto fault = unreadable_body(request.headers)) {
    return ApiError{.kind = ApiErrorKind::kMediaType, .message = *std::move(fault)};
  }
  return std::nullopt;
}

void Server::Impl::tell(const HttpRequest& request, int status) {
  if (!state.options.on_request) return;
  state.options.on_request({.method = request.method,
                            .path = request.target.substr(0, request.target.find('?')),
                            .status = status,
                            .reason = {}});
}

std::optional<HttpReply> Server::Impl::check(const HttpRequest& request) {
  std::optional<HttpReply> reply = refusal_before_body(request);
  if (reply.has_value()) tell(request, reply->status);
  return reply;
}

std::optional<HttpReply> Server::Impl::refusal_before_body(const HttpRequest& request) {
  const TargetParts target = split_target(request.target);
  const FoundRoute found = find_route(table, request.method, target.path);
  const ErrorFormat format = found.errors;
  if (const auto error = access_error(request)) return refuse(*error, request, format);
  if (request.method == "OPTIONS") return preflight(request);
  if (const auto error = route_error(found, request)) {
    HttpReply reply = refuse(*error, request, format);
    if (error->kind == ApiErrorKind::kMethod) reply.headers.push_back({"Allow", found.allowed});
    return reply;
  }
  if (service == nullptr && !found.route->works_while_loading) {
    return refuse({.kind = ApiErrorKind::kUnavailable,
                   .message = "Loading model",
                   .retry_seconds = kRetrySeconds},
                  request, format);
  }
  if (state.is_ending && !found.route->works_while_loading) {
    return refuse(
        {.kind = ApiErrorKind::kUnavailable, .message = "the server ends", .retry_seconds = 10},
        request, format);
  }
  return std::nullopt;
}

void Server::Impl::handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const TargetParts target = split_target(request.target);
  const FoundRoute found = find_route(table, request.method, target.path);
  const bool is_slow = found.route != nullptr && found.route->is_slow;
  const bool is_large = request.body.size() > kLargeBody;
  WorkerPool& pool = is_slow ? *slow_worker : is_large ? *large_worker : *workers;
  const auto record = std::make_shared<RequestRecord>();
  if (state.options.on_request) {
    record->method = request.method;
    record->path = request.target.substr(0, request.target.find('?'));
    writer = with_record(std::move(writer), record, state.options.on_request);
  }
  pool.post([this, request = std::make_shared<HttpRequest>(std::move(request)), record,
             writer = std::move(writer)] { run(*request, record, writer); });
}

AnswerService& Server::Impl::service_now(ServiceModel& model) {
  AnswerService* now = service;
  AnswerService& used = now != nullptr ? *now : *loading;
  model = used.model();
  if (!state.options.model_id.empty()) model.id = state.options.model_id;
  return used;
}

AnswerOptions Server::Impl::new_defaults(const AnswerService& used) {
  const DefaultSampling& own = state.options.defaults;
  AnswerOptions defaults;
  SamplerOptions& sampling = defaults.sampling;
  sampling = used.sampling_defaults();
  sampling.temperature = own.temperature.value_or(sampling.temperature);
  sampling.top_p = own.top_p.value_or(sampling.top_p);
  sampling.min_p = own.min_p.value_or(sampling.min_p);
  sampling.top_k = own.top_k.value_or(sampling.top_k);
  defaults.max_tokens = own.max_tokens;
  const std::lock_guard lock(mutex);
  sampling.seed = own.seed.value_or(random() >> 1U);
  return defaults;
}

void Server::Impl::run(HttpRequest& request, const std::shared_ptr<RequestRecord>& record,
                       const std::shared_ptr<ResponseWriter>& writer) {
  TargetParts target = split_target(request.target);
  FoundRoute found = find_route(table, request.method, target.path);
  if (found.route == nullptr) return;  // check() has seen to it
  ServiceModel model;
  AnswerService& used = service_now(model);
  const AnswerOptions defaults = new_defaults(used);
  RouteCall call{.http = request,
                 .path = std::move(target.path),
                 .rest = std::move(found.rest),
                 .query = std::move(target.query),
                 .json = OrderedJson::object(),
                 .request_id = new_id(),
                 .unix_seconds = std::time(nullptr),
                 .service = used,
                 .model = model,
                 .defaults = defaults};
  try {
    answer(*found.route, call, std::move(request.body), record, writer);
  } catch (const std::exception&) {
    const ApiError error{.kind = ApiErrorKind::kServer,
                         .message = "the server could not answer this request",
                         .should_retry = false};
    writer->reply(refuse(error, request, found.errors));
  }
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the body is to end with the function
std::optional<ApiError> Server::Impl::read_body(std::string body, RouteCall& call) const {
  if (call.http.method != "POST" || body.empty()) return std::nullopt;
  auto json = parse_ordered_json(body, Where{.file = "request body"});
  if (!json.is_ok()) return invalid_request(json.status().message());
  call.json = std::move(json).value();
  if (call.json.is_object()) return std::nullopt;
  return invalid_request("the body must be a JSON object");
}

void Server::Impl::answer(const Route& route, RouteCall& call, std::string body,
                          const std::shared_ptr<RequestRecord>& record,
                          const std::shared_ptr<ResponseWriter>& writer) {
  const auto send_error = [&](const ApiError& error) {
    state.metrics.add_reply(http_status(error.kind));
    writer->reply(error_reply(error, route.errors, call.request_id,
                              common_headers(call.http, call.request_id)));
  };
  if (const auto error = read_body(std::move(body), call)) return send_error(*error);
  if (const auto* plain = std::get_if<PlainHandler>(&route.handler)) {
    auto done = (*plain)(call);
    if (const auto* error = std::get_if<ApiError>(&done)) return send_error(*error);
    auto& reply = std::get<HttpReply>(done);
    HttpHeaders headers = common_headers(call.http, call.request_id);
    reply.headers.insert(reply.headers.begin(), headers.begin(), headers.end());
    state.metrics.add_reply(reply.status);
    return writer->reply(std::move(reply));
  }
  auto job = std::get<AnswerHandler>(route.handler)(call);
  if (const auto* error = std::get_if<ApiError>(&job)) return send_error(*error);
  call.json = OrderedJson();  // the job has what it says
  start_session(std::get<AnswerJob>(std::move(job)), route, call, record, writer);
}

void Server::Impl::start_session(AnswerJob job, const Route& route, const RouteCall& call,
                                 const std::shared_ptr<RequestRecord>& record,
                                 const std::shared_ptr<ResponseWriter>& writer) {
  SessionContext context{.service = call.service,
                         .workers = *workers,
                         .metrics = state.metrics,
                         .request_id = call.request_id,
                         .errors = route.errors,
                         .headers = common_headers(call.http, call.request_id),
                         .record = record};
  const auto session = std::make_shared<AnswerSession>(std::move(context), std::move(job), writer);
  bool is_late = false;
  {
    const std::lock_guard lock(mutex);
    is_late = is_stopped;  // nobody would end it
    if (!is_late) sessions.push_back(session);
  }
  if (!is_late) return session->start();
  writer->reply(refuse(
      {.kind = ApiErrorKind::kUnavailable, .message = "the server ends", .retry_seconds = 10},
      call.http, route.errors));
}

std::vector<std::shared_ptr<AnswerSession>> Server::Impl::live_sessions() {
  std::vector<std::shared_ptr<AnswerSession>> live;
  const std::lock_guard lock(mutex);
  for (const auto& weak : sessions) {
    if (auto session = weak.lock()) live.push_back(std::move(session));
  }
  sessions.assign(live.begin(), live.end());
  return live;
}

void Server::Impl::pulse() {
  const auto silence =
      std::chrono::duration_cast<ServeClock::duration>(serve_seconds(state.options.ping_seconds));
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kPulse, [this] { return is_stopped; })) {
    lock.unlock();
    try {
      const auto live = live_sessions();  // forgets those that have ended
      for (const auto& session : live) {
        if (silence.count() > 0) session->keep_awake(ServeClock::now() - silence);
      }
    } catch (const std::exception&) {
      // No memory: at the next pulse again.
    }
    lock.lock();
  }
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  const ServerOptions& kept = impl->state.options;
  impl->workers = std::make_unique<WorkerPool>(std::max<std::size_t>(1, kept.workers));
  impl->slow_worker = std::make_unique<WorkerPool>(1);
  impl->large_worker = std::make_unique<WorkerPool>(1);
  Impl* raw = impl.get();
  impl->state.http_stats = [raw] {
    const std::lock_guard lock(raw->mutex);
    return raw->http == nullptr ? HttpStats{} : raw->http->stats();
  };
  MOE_ASSIGN_OR_RETURN(impl->http, HttpServer::start(kept.http, *impl));
  impl->pulse_thread = std::thread([raw] { raw->pulse(); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::~Server() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->is_stopped = true;
  }
  impl_->changed.notify_all();
  if (impl_->pulse_thread.joinable()) impl_->pulse_thread.join();
  finish(0);
  for (const auto& session : impl_->live_sessions()) session->forget();
  std::unique_ptr<HttpServer> http;  // ends outside the lock: its thread takes it
  {
    const std::lock_guard lock(impl_->mutex);
    http = std::move(impl_->http);
  }
}

void Server::set_service(AnswerService& service) {
  impl_->service = &service;
  impl_->state.is_loading = false;
}

std::vector<std::string> Server::addresses() const { return impl_->http->addresses(); }

void Server::finish(double grace_seconds) {
  const auto deadline = ServeClock::now() + std::chrono::duration_cast<ServeClock::duration>(
                                                serve_seconds(grace_seconds));
  const auto last = deadline + std::chrono::seconds(5);
  impl_->state.is_ending = true;
  impl_->http->stop_accepting();
  for (const auto& session : impl_->live_sessions()) session->cancel(true);
  const auto has_running = [this] {
    const auto live = impl_->live_sessions();
    return std::any_of(live.begin(), live.end(), [](const auto& s) { return !s->has_ended(); });
  };
  while (has_running() && ServeClock::now() < deadline) std::this_thread::sleep_for(kPulse / 5);
  for (const auto& session : impl_->live_sessions()) session->cancel(false);
  // What was cancelled says so to its client.
  while (has_running() && ServeClock::now() < last) std::this_thread::sleep_for(kPulse / 5);
  (void)impl_->http->wait_until_idle(1);
}

}  // namespace moepack
