// Bytes of a connection: whatever comes, each request is answered once or the connection closed,
// and the server goes on.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/http/http_server.h"
#include "runtime/serve/router.h"
#include "tests/fuzz/require.h"

namespace {

using moepack::HttpOptions;
using moepack::HttpReply;
using moepack::HttpRequest;
using moepack::HttpServer;
using moepack::ResponseWriter;
using moepack::test::require;

HttpOptions fuzz_options() {
  HttpOptions options;
  options.max_header_bytes = 2048;
  options.max_target_bytes = 256;
  options.max_headers = 16;
  options.max_body_bytes = 4096;
  options.max_queued_bytes = 4096;
  options.linger_seconds = 0.05;
  return options;
}

// Answers at once, whole or in pieces.
class EchoHandler final : public moepack::HttpHandler {
 public:
  std::optional<HttpReply> check(const HttpRequest& request) override {
    require(request.target.size() <= 256 && request.headers.size() <= 16);
    (void)moepack::split_target(request.target);
    if (request.method == "OPTIONS") return HttpReply{.status = 204};
    return std::nullopt;
  }
  void handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override {
    require(request.body.size() <= 4096);
    if (request.body.size() % 3 == 0) return writer->reply({.body = request.body});
    if (request.body.size() % 3 == 1) return;  // dropped
    writer->begin(200, {{"X-Target", request.target}});
    (void)writer->write(request.body);
    writer->end();
  }
  HttpReply error(int status, const std::string& message) override {
    require(status >= 400 && status < 600 && !message.empty());
    return {.status = status, .body = message};
  }
};

// Waits in steps, so that a machine that stood still does not look like a connection that hangs.
bool is_readable(int descriptor) {
  for (int step = 0; step < 10; ++step) {
    pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 1000) > 0) return true;
  }
  require(false);
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static EchoHandler handler;
  static const std::unique_ptr<HttpServer> server =
      HttpServer::start_without_listening(fuzz_options(), handler).value();
  if (size > 65536) return 0;
  int ends[2] = {};
  require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  server->adopt(ends[1]);
  (void)::send(ends[0], data, size, MSG_NOSIGNAL);
  (void)::shutdown(ends[0], SHUT_WR);
  char buffer[4096];
  while (is_readable(ends[0]) && ::recv(ends[0], buffer, sizeof buffer, 0) > 0) continue;
  ::close(ends[0]);
  return 0;
}
