// A server for HTTP/1.1 (and 1.0), without TLS. One thread moves the bytes of all connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/http/http_message.h"
#include "runtime/http/response_writer.h"

namespace moepack {

struct HttpOptions {
  std::string host = "127.0.0.1";  // a name or an address; every address of a name is listened on
  std::uint16_t port = 8080;       // 0: one that is free
  std::size_t max_connections = 1024;                    // more are answered with 503
  std::size_t max_target_bytes = std::size_t{8} << 10;   // longer: 414
  std::size_t max_header_bytes = std::size_t{64} << 10;  // more, request line included: 431
  std::size_t max_headers = 100;                         // more: 431
  std::size_t max_body_bytes = std::size_t{64} << 20;    // more: 413
  std::size_t max_all_bodies = std::size_t{1} << 30;     // of requests held at a time; more: 503
  std::size_t max_queued_bytes = std::size_t{4} << 20;   // of a stream, waiting for its reader
  double header_seconds = 20;       // from the first byte of a request to its last header; then 408
  double body_seconds = 30;         // without a byte of the body; then 408
  double body_total_seconds = 600;  // of a whole body; then 408
  double idle_seconds = 120;        // between requests; then the connection is closed
  double write_seconds = 60;        // a client takes nothing; then the connection is closed
  double linger_seconds = 2;        // reading on after an error, so that the client sees the answer
};

// What answers. Called in the server's thread, which no function may hold up.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // The headers of a request are there, its body is not. A reply ends the request.
  virtual std::optional<HttpReply> check(const HttpRequest& request) = 0;
  // A whole request.
  virtual void handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) = 0;
  // The reply to what is no request, or too large, slow or much.
  virtual HttpReply error(int status, const std::string& message) = 0;
};

struct HttpStats {
  std::uint64_t connections = 0;  // open now
  std::uint64_t accepted = 0;     // since the start
  std::uint64_t requests = 0;
};

// Functions may be called from any thread but the server's own.
class HttpServer {
 public:
  // Listens when it returns. `handler` outlives the server. kIo: address and reason.
  static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options,
                                                   HttpHandler& handler);
  // As without listening: only what is adopted is served.
  static Result<std::unique_ptr<HttpServer>> start_without_listening(const HttpOptions& options,
                                                                     HttpHandler& handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Cuts what still runs. Writers that are left become useless and harmless.
  ~HttpServer();

  std::vector<std::string> addresses() const;  // "127.0.0.1:8080", "[::1]:8080"
  HttpStats stats() const;

  // Serves a connected socket of any kind, and owns it.
  void adopt(int descriptor);

  // Nothing new is accepted, idle connections are closed; the others when they have their answer.
  void stop_accepting();
  // Whether all connections were gone within so many seconds.
  bool wait_until_idle(double seconds);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
