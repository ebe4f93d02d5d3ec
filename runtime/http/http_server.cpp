#include "runtime/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>

#include "runtime/http/http_connection.h"
#include "runtime/http/http_core.h"

namespace moepack {
namespace {

namespace asio = boost::asio;
using boost::asio::ip::tcp;

// Connections beyond the limit that are told so; more are closed without a word.
constexpr std::size_t kRefusedConnections = 64;

void set_option(int descriptor, int level, int name, int value) {
  // A socket that does not know the option works without it.
  (void)::setsockopt(descriptor, level, name, &value, sizeof value);
}

// A client whose machine has vanished is noticed within a minute and a half.
void tune_tcp(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 45);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

std::string endpoint_text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  const std::string port = ":" + std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + address + "]" + port : address + port;
}

Status listen_error(const HttpOptions& options, const boost::system::error_code& error) {
  return {StatusCode::kIo, "cannot listen on " + printable(options.host) + " port " +
                               std::to_string(options.port) + ": " + error.message() +
                               "; choose another --host or --port"};
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& options, HttpHandler& handler)
      : core(std::make_shared<HttpCore>(options, handler)), work(core->io.get_executor()) {}

  Status listen();
  boost::system::error_code open(tcp::acceptor& acceptor, tcp::endpoint endpoint);
  void accept(std::size_t index);
  void take(HttpConnection::Socket socket);
  void run();
  void stop_accepting();

  std::shared_ptr<HttpCore> core;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::vector<tcp::acceptor> acceptors;
  std::vector<std::unique_ptr<asio::steady_timer>> pauses;  // of each acceptor
  std::vector<tcp::endpoint> endpoints;
  std::thread thread;
};

boost::system::error_code HttpServer::Impl::open(tcp::acceptor& acceptor, tcp::endpoint endpoint) {
  boost::system::error_code error;
  if (acceptor.open(endpoint.protocol(), error)) return error;
  (void)acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (endpoint.address().is_v6()) (void)acceptor.set_option(asio::ip::v6_only(true), error);
  if (acceptor.bind(endpoint, error)) return error;
  (void)acceptor.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

Status HttpServer::Impl::listen() {
  boost::system::error_code error;
  tcp::resolver resolver(core->io);
  const auto found = resolver.resolve(core->options.host, std::to_string(core->options.port),
                                      tcp::resolver::passive, error);
  if (error) return listen_error(core->options, error);
  std::uint16_t port = core->options.port;
  for (const auto& entry : found) {
    tcp::acceptor acceptor(core->io);
    const tcp::endpoint wanted(entry.endpoint().address(), port);
    if (const auto failed = open(acceptor, wanted)) {
      error = failed;
      continue;
    }
    endpoints.push_back(acceptor.local_endpoint());
    port = endpoints.back().port();
    acceptors.push_back(std::move(acceptor));
    pauses.push_back(std::make_unique<asio::steady_timer>(core->io));
  }
  // A name may have an address of a kind that the machine does not speak; a port that is taken on
  // one address is an error all the same.
  const bool is_taken = error == asio::error::address_in_use;
  if (acceptors.empty() || is_taken) return listen_error(core->options, error);
  for (std::size_t i = 0; i < acceptors.size(); ++i) accept(i);
  return Status::ok();
}

void HttpServer::Impl::accept(std::size_t index) {
  acceptors[index].async_accept([this, index](boost::system::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptors[index].is_open()) return;
    if (!error) {
      accept(index);
      tune_tcp(socket.native_handle());
      return take(std::move(socket));
    }
    // No descriptors are left, or the client has gone: others may end meanwhile.
    pauses[index]->expires_after(std::chrono::milliseconds(50));
    pauses[index]->async_wait([this, index](boost::system::error_code stopped) {
      if (!stopped) accept(index);
    });
  });
}

void HttpServer::Impl::take(HttpConnection::Socket socket) {
  const std::size_t open_connections = core->connections.size();
  if (open_connections >= core->options.max_connections + kRefusedConnections) return;
  ++core->accepted;
  const auto connection = std::make_shared<HttpConnection>(core, std::move(socket));
  core->connections.insert(connection.get());
  {
    const std::lock_guard lock(core->mutex);
    ++core->all_connections;
  }
  if (open_connections < core->options.max_connections) return connection->start();
  connection->start_refused(core->handler.error(503, "too many connections"));
}

void HttpServer::Impl::run() {
  for (;;) {
    try {
      core->io.run();
      return;
    } catch (const std::exception&) {
      // What a handler throws (no memory) ends its request: the writer was dropped.
    }
  }
}

void HttpServer::Impl::stop_accepting() {
  core->is_ending = true;
  boost::system::error_code ignored;
  for (tcp::acceptor& acceptor : acceptors) (void)acceptor.close(ignored);
  for (const auto& pause : pauses) pause->cancel();
  const std::vector<HttpConnection*> all(core->connections.begin(), core->connections.end());
  for (HttpConnection* connection : all) connection->end_when_idle();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options,
                                                      HttpHandler& handler) {
  auto impl = std::make_unique<Impl>(options, handler);
  MOE_RETURN_IF_ERROR(impl->listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

Result<std::unique_ptr<HttpServer>> HttpServer::start_without_listening(const HttpOptions& options,
                                                                        HttpHandler& handler) {
  return std::unique_ptr<HttpServer>(new HttpServer(std::make_unique<Impl>(options, handler)));
}

HttpServer::~HttpServer() {
  asio::post(impl_->core->io, [impl = impl_.get()] {
    impl->stop_accepting();
    // Each keeps itself alive while it closes.
    const auto& set = impl->core->connections;
    std::vector<std::shared_ptr<HttpConnection>> all;
    for (HttpConnection* connection : set) all.push_back(connection->shared_from_this());
    for (const auto& connection : all) connection->close();
    impl->work.reset();
  });
  impl_->thread.join();
}

std::vector<std::string> HttpServer::addresses() const {
  std::vector<std::string> texts;
  for (const tcp::endpoint& endpoint : impl_->endpoints) texts.push_back(endpoint_text(endpoint));
  return texts;
}

HttpStats HttpServer::stats() const {
  HttpStats stats{.accepted = impl_->core->accepted, .requests = impl_->core->requests};
  const std::lock_guard lock(impl_->core->mutex);
  stats.connections = impl_->core->all_connections;
  return stats;
}

void HttpServer::adopt(int descriptor) {
  asio::post(impl_->core->io, [impl = impl_.get(), descriptor] {
    HttpConnection::Socket socket(impl->core->io);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    boost::system::error_code error;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
      (void)socket.assign({address.ss_family, 0}, descriptor, error);
    }
    if (socket.is_open()) impl->take(std::move(socket));
  });
}

void HttpServer::stop_accepting() {
  asio::post(impl_->core->io, [impl = impl_.get()] { impl->stop_accepting(); });
}

bool HttpServer::wait_until_idle(double seconds) {
  HttpCore& core = *impl_->core;
  std::unique_lock lock(core.mutex);
  return core.changed.wait_for(lock, std::chrono::duration<double>(seconds),
                               [&core] { return core.all_connections == 0; });
}

}  // namespace moepack
