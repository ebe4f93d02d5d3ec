#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include "runtime/http/http_connection.h"

namespace moepack {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::size_t kHttpReadBytes = 4096;
constexpr std::string_view kHttpContinue = "HTTP/1.1 100 Continue\r\n\r\n";

struct HttpFault {
  int status;
  std::string message;
};

// What bytes that are no request are called; status 0: there is nobody to tell.
HttpFault http_fault_of(const boost::beast::error_code& error, bool is_header) {
  if (error == http::error::partial_message) return {400, "the request ends too early"};
  if (error == http::error::end_of_stream) return {0, {}};
  if (error == http::error::body_limit) return {413, "the body is too large"};
  if (error == http::error::header_limit) return {431, "the headers are too large"};
  if (error == http::error::buffer_overflow) {
    return is_header ? HttpFault{431, "the headers are too large"}
                     : HttpFault{400, "a chunk of the body has too much before it"};
  }
  if (error == http::error::bad_version) return {505, "only HTTP/1.1 and HTTP/1.0 are spoken here"};
  if (error.category() == http::make_error_code(http::error::bad_method).category()) {
    return {400, "not a request of HTTP/1.1: " + error.message()};
  }
  return {0, {}};
}

HttpFault http_framing_fault(const HttpRequest& request, unsigned version) {
  std::size_t hosts = 0;
  std::size_t lengths = 0;
  std::size_t encodings = 0;
  for (const HttpHeader& header : request.headers) {
    if (equals_header_name(header.name, "Host")) ++hosts;
    if (equals_header_name(header.name, "Content-Length")) ++lengths;
    if (!equals_header_name(header.name, "Transfer-Encoding")) continue;
    ++encodings;
    if (!equals_header_name(header.value, "chunked")) {
      return {501, "the only Transfer-Encoding that is understood is chunked"};
    }
  }
  if (encodings > 0 && version < 11) return {400, "Transfer-Encoding with HTTP/1.0"};
  if (encodings > 1 || lengths > 1 || encodings + lengths > 1) {
    return {400, "the length of the body is given twice"};
  }
  if (hosts > 1 || (hosts == 0 && version >= 11)) return {400, "there must be one Host header"};
  return {0, {}};
}

HttpFault http_size_fault(const HttpRequest& request, const HttpOptions& options) {
  if (request.target.size() > options.max_target_bytes) {
    return {414, "the path is longer than " + std::to_string(options.max_target_bytes) + " bytes"};
  }
  if (request.headers.size() > options.max_headers) {
    return {431, "more than " + std::to_string(options.max_headers) + " headers"};
  }
  return {0, {}};
}

// Counted bytes of a body that a handler has.
class HttpBodyPlace {
 public:
  HttpBodyPlace(std::shared_ptr<HttpCore> core, std::size_t bytes)
      : core_(std::move(core)), bytes_(bytes) {}
  HttpBodyPlace(const HttpBodyPlace&) = delete;
  HttpBodyPlace& operator=(const HttpBodyPlace&) = delete;
  ~HttpBodyPlace() { core_->body_bytes -= bytes_; }

 private:
  const std::shared_ptr<HttpCore> core_;
  const std::size_t bytes_;
};

}  // namespace

void HttpConnection::wait_for_request() {
  phase_ = Phase::kIdle;
  if (core_->is_ending) return close();
  drop_empty_lines();
  if (buffer_.size() > 0) return read_header();
  arm(core_->options.idle_seconds, &HttpConnection::close);
  watch();
}

// Some clients end a body with a line end that is no part of it (RFC 9112, 2.2).
void HttpConnection::drop_empty_lines() {
  const asio::const_buffer waiting = buffer_.data();
  const std::string_view text(static_cast<const char*>(waiting.data()), waiting.size());
  std::size_t empty = 0;
  while (text.substr(empty).starts_with("\r\n")) empty += 2;
  buffer_.consume(empty);
}

void HttpConnection::watch() {
  // A client that sends a lot ahead is not read, and not seen to go, until it has its answer.
  if (is_watching_ || buffer_.size() + kHttpReadBytes > buffer_.max_size()) return;
  is_watching_ = true;
  socket_.async_read_some(buffer_.prepare(kHttpReadBytes),
                          [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                            self->on_watched(error, bytes);
                          });
}

void HttpConnection::on_watched(ErrorCode error, std::size_t bytes) {
  is_watching_ = false;
  if (phase_ == Phase::kClosed) return;
  buffer_.commit(bytes);
  if (phase_ == Phase::kLingering)
    return error && error != asio::error::operation_aborted ? close() : read_rest();
  if (error == asio::error::operation_aborted) error = {};
  if (phase_ == Phase::kIdle) return error ? close() : wait_for_request();
  if (!error) return watch();
  // The end of what the client sends is taken for its leaving; a whole reply is still sent.
  set_gone();
  if (error != asio::error::eof) close();
}

void HttpConnection::read_header() {
  phase_ = Phase::kReading;
  is_timed_out_ = false;
  request_ = {};
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(core_->options.max_header_bytes));
  parser_->body_limit(core_->options.max_body_bytes);
  arm(core_->options.header_seconds, &HttpConnection::on_read_timeout);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->on_header(error); });
}

void HttpConnection::on_header(ErrorCode error) {
  if (phase_ == Phase::kClosed) return;
  disarm();
  keeps_alive_ = is_head_ = is_old_ = false;
  if (error) return fail_reading(error);
  ++core_->requests;
  const auto& message = parser_->get();
  request_.method = std::string(message.method_string());
  request_.target = std::string(message.target());
  for (const auto& field : message) {
    request_.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  is_old_ = message.version() < 11;
  is_head_ = request_.method == "HEAD";
  if (message.version() != 10 && message.version() != 11) {
    return fail(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
  }
  if (is_refused()) return;
  keeps_alive_ = parser_->keep_alive();
  if (parser_->is_done()) return take_request();
  expect_body();
}

bool HttpConnection::is_refused() {
  HttpFault fault = http_framing_fault(request_, parser_->get().version());
  if (fault.status == 0) fault = http_size_fault(request_, core_->options);
  if (fault.status != 0) {
    fail(fault.status, fault.message);
    return true;
  }
  const std::optional<HttpReply> answer = core_->handler.check(request_);
  if (!answer.has_value()) return false;
  keeps_alive_ = parser_->is_done() && parser_->keep_alive();
  reply(begin_answer(), *answer);
  return true;
}

void HttpConnection::expect_body() {
  body_deadline_ =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(core_->options.body_total_seconds));
  const std::string* expected = find_header(request_.headers, "Expect");
  if (expected == nullptr || is_old_) return read_body();
  if (!equals_header_name(*expected, "100-continue")) {
    return fail(417, "the only expectation that is met is 100-continue");
  }
  if (buffer_.size() > 0) return read_body();
  arm(core_->options.body_seconds, &HttpConnection::close);
  asio::async_write(socket_, asio::buffer(kHttpContinue.data(), kHttpContinue.size()),
                    [self = shared_from_this()](ErrorCode error, std::size_t) {
                      if (self->phase_ == Phase::kClosed) return;
                      if (error) return self->close();
                      self->read_body();
                    });
}

void HttpConnection::read_body() {
  const std::chrono::duration<double> left = body_deadline_ - Clock::now();
  arm(std::min(core_->options.body_seconds, left.count()), &HttpConnection::on_read_timeout);
  http::async_read_some(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->on_body(error); });
}

void HttpConnection::on_body(ErrorCode error) {
  if (phase_ == Phase::kClosed) return;
  disarm();
  if (error && error != http::error::need_buffer) return fail_reading(error);
  const std::size_t size = parser_->get().body().size();
  core_->body_bytes += size - counted_body_;
  counted_body_ = size;
  if (core_->body_bytes > core_->options.max_all_bodies) {
    return fail(503, "too much is being sent to this server at the same time");
  }
  if (!parser_->is_done()) return read_body();
  take_request();
}

void HttpConnection::take_request() {
  request_.body = std::move(parser_->get().body());
  if (counted_body_ > 0) {
    request_.body_place = std::make_shared<HttpBodyPlace>(core_, counted_body_);
    counted_body_ = 0;
  }
  parser_.reset();
  const std::uint64_t answer = begin_answer();
  watch();
  core_->handler.handle(std::move(request_), make_response_writer(shared_from_this(), answer));
}

void HttpConnection::fail_reading(ErrorCode error) {
  if (is_timed_out_) return fail(408, "the request took too long to come");
  const HttpFault fault = http_fault_of(error, !parser_->is_header_done());
  if (fault.status == 0) return close();
  fail(fault.status, fault.message);
}

void HttpConnection::fail(int status, const std::string& message) {
  release_body();
  keeps_alive_ = false;
  reply(begin_answer(), core_->handler.error(status, message));
}

void HttpConnection::on_read_timeout() {
  is_timed_out_ = true;
  ErrorCode ignored;
  socket_.cancel(ignored);  // the read that is pending fails, and answers
}

void HttpConnection::release_body() { core_->body_bytes -= std::exchange(counted_body_, 0); }

void HttpConnection::linger() {
  phase_ = Phase::kLingering;
  parser_.reset();
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  arm(core_->options.linger_seconds, &HttpConnection::close);
  if (!is_watching_) return read_rest();
  socket_.cancel(ignored);
}

void HttpConnection::read_rest() {
  buffer_.clear();
  is_watching_ = true;
  socket_.async_read_some(buffer_.prepare(std::size_t{16} << 10),
                          [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                            self->on_watched(error, bytes);
                          });
}

}  // namespace moepack
