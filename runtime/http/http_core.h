// What all connections of a server share. For the files of this folder alone: it names Boost.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>

#include <boost/asio/io_context.hpp>

#include "runtime/http/http_server.h"

namespace moepack {

class HttpConnection;

// Owned by the server and by each connection together: a writer that outlives the server still has
// a context for its closed socket. All but the atomic counts and the count of connections belongs
// to the thread of the server.
struct HttpCore {
  HttpCore(const HttpOptions& with, HttpHandler& answers) : options(with), handler(answers) {}

  const HttpOptions options;
  HttpHandler& handler;
  boost::asio::io_context io{1};
  std::unordered_set<HttpConnection*> connections;
  std::atomic<bool> is_ending{false};      // set by the server's thread
  std::atomic<std::size_t> body_bytes{0};  // of requests that are read or, in handlers, still there

  std::mutex mutex;
  std::condition_variable changed;  // all_connections
  std::size_t all_connections = 0;  // under `mutex`
  std::atomic<std::uint64_t> accepted{0}, requests{0};
};

}  // namespace moepack
