// One connection: reads requests one after another and sends what is answered. For the files of
// this folder alone: it names Boost.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>

#include "runtime/http/body_text.h"
#include "runtime/http/http_core.h"

namespace moepack {

// Lives as long as an operation on its socket or a writer holds it. Phases, in the server's thread:
// idle -> reading -> answering -> idle …, or lingering -> closed. While it waits and while it
// answers, one read is pending ("watching"): it brings the next request, or tells that the client
// has gone.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  HttpConnection(std::shared_ptr<HttpCore> core, Socket socket);

  // In the server's thread.
  void start();
  void start_refused(HttpReply reply);  // a connection too many: an answer, and the end
  void end_when_idle();                 // now if it waits for a request, else after its answer
  void close();                         // now

  // For writers, in any thread. `answer` numbers the requests of the connection: calls for another
  // than the current one do nothing.
  void reply(std::uint64_t answer, const HttpReply& reply);
  void begin(std::uint64_t answer, int status, const HttpHeaders& headers);
  bool write(std::uint64_t answer, std::string_view bytes);
  void end(std::uint64_t answer);
  void abort(std::uint64_t answer);
  void on_gone(std::uint64_t answer, std::function<void()> callback);
  void drop(std::uint64_t answer);

 private:
  using ErrorCode = boost::beast::error_code;
  using Parser = boost::beast::http::request_parser<BodyText>;
  using Clock = std::chrono::steady_clock;
  enum class Phase : std::uint8_t { kIdle, kReading, kAnswering, kLingering, kClosed };

  // Reading; http_reading.cpp.
  void wait_for_request();
  void drop_empty_lines();
  void watch();
  void on_watched(ErrorCode error, std::size_t bytes);
  void read_header();
  void on_header(ErrorCode error);
  bool is_refused();  // and answered, because of its headers
  void expect_body();
  void read_body();
  void on_body(ErrorCode error);
  void take_request();
  void fail_reading(ErrorCode error);
  void fail(int status, const std::string& message);
  void on_read_timeout();
  void release_body();
  void linger();
  void read_rest();

  // Answering; http_connection.cpp.
  std::uint64_t begin_answer();
  bool is_current(std::uint64_t answer) const { return is_open_ && answer == answer_; }
  std::string head_of(int status, const HttpHeaders& headers,
                      std::optional<std::size_t> length) const;
  void push(std::string_view bytes);  // under mutex_
  void schedule_flush();              // under mutex_
  void flush();
  void write_some();
  void on_written(ErrorCode error, std::size_t bytes);
  void finish_answer();
  void set_gone();
  void arm(double seconds, void (HttpConnection::*then)());
  void disarm();

  const std::shared_ptr<HttpCore> core_;
  Socket socket_;
  boost::asio::steady_timer timer_;
  std::uint64_t timer_number_ = 0;  // of the last arm() or disarm()
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  HttpRequest request_;
  Phase phase_ = Phase::kIdle;
  bool is_watching_ = false;
  bool is_timed_out_ = false;
  std::size_t counted_body_ = 0;  // of core_->body_bytes
  Clock::time_point body_deadline_;
  std::string writing_;  // what the socket is given
  std::size_t written_ = 0;
  bool is_writing_ = false;

  // Set before a writer is handed out, and unchanged until its answer has ended.
  bool keeps_alive_ = false;
  bool is_head_ = false;  // headers alone
  bool is_old_ = false;   // HTTP/1.0: no chunks

  std::mutex mutex_;  // of all below
  std::uint64_t answer_ = 0;
  bool is_open_ = false;       // the answer has no end yet
  bool is_streaming_ = false;  // begin() was called
  bool has_end_ = false;       // nothing follows what is in pending_
  bool is_cut_ = false;        // the connection ends without what is in pending_
  bool is_gone_ = false;       // the client
  bool is_lost_ = false;       // closed before the answer had an end
  bool is_scheduled_ = false;  // flush() will run
  bool is_closed_ = false;     // nothing is posted any more
  std::string pending_;        // what is to be written next
  std::size_t unsent_ = 0;     // bytes in pending_ and, not yet taken, in writing_
  std::function<void()> gone_;
};

// The writer of an answer, for handlers.
std::shared_ptr<ResponseWriter> make_response_writer(std::shared_ptr<HttpConnection> connection,
                                                     std::uint64_t answer);

}  // namespace moepack
