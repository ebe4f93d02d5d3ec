// The server: routes over HTTP, in front of an AnswerService.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/http/http_server.h"
#include "runtime/serve/access_rules.h"
#include "runtime/serve/request_log.h"
#include "runtime/serve/route.h"
#include "runtime/service/answer_service.h"

namespace moepack {

// What holds for requests that do not say it, instead of the model's own
// (AnswerService::sampling_defaults).
struct DefaultSampling {
  std::optional<float> temperature, top_p, min_p;
  std::optional<std::int32_t> top_k;
  std::optional<std::uint64_t> seed;  // else each request has a random one
  std::optional<std::uint64_t> max_tokens;
};

struct ServerOptions {
  HttpOptions http;
  AccessRules access;
  std::string model_id;       // what clients call the model; empty: ServiceModel::id
  std::string model_path;     // shown by /props; may be empty
  DefaultSampling defaults;   // of what requests do not say
  double ping_seconds = 10;   // of silence in a stream, then a comment
  bool shows_metrics = true;  // GET /metrics
  bool shows_slots = false;   // GET /slots: it tells of others' requests
  std::size_t workers = 4;    // threads that parse, render and tokenize
  RequestSink on_request;     // told of each request once it is answered; may be empty
};

// Functions may be called from any thread but those of the server.
class Server {
 public:
  // Listens when it returns, and answers 503 until there is a service.
  static Result<std::unique_ptr<Server>> start(ServerOptions options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Cuts what still runs. The service must not end before.
  ~Server();

  // The model is there: once. `service` outlives the server.
  void set_service(AnswerService& service);

  std::vector<std::string> addresses() const;

  // Takes nothing new, ends what waits, lets what runs go on for so many seconds and then ends that
  // too; streams get an error event.
  void finish(double grace_seconds);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
