#include "runtime/http/http_connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

namespace moepack {
namespace {

// Most bytes of one write: a client that takes so many within write_seconds is not too slow.
constexpr std::size_t kHttpWriteBytes = std::size_t{256} << 10;

// Buffers of more are given back after an answer.
constexpr std::size_t kHttpKeptBytes = std::size_t{64} << 10;

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  const std::size_t size =
      std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), size};
}

// A line of the head. Control characters would begin another one.
void append_http_header(std::string& head, std::string_view name, std::string_view value) {
  head.append(name).append(": ");
  for (const char c : value) head += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  head += "\r\n";
}

std::string chunk_size_line(std::size_t size) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), size, 16).ptr;
  return std::string(digits.data(), end) + "\r\n";
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, Socket socket)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      timer_(core_->io),
      buffer_(core_->options.max_header_bytes + (std::size_t{64} << 10)) {}

void HttpConnection::start() { wait_for_request(); }

void HttpConnection::start_refused(HttpReply refusal) {
  keeps_alive_ = false;
  reply(begin_answer(), refusal);
}

void HttpConnection::end_when_idle() {
  if (phase_ == Phase::kIdle) close();
}

void HttpConnection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  ErrorCode ignored;
  socket_.close(ignored);  // the client need not wait for those who are told
  set_gone();
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    is_lost_ = is_open_;
    is_open_ = false;
    pending_.clear();
  }
  disarm();
  release_body();
  core_->connections.erase(this);
  const std::lock_guard lock(core_->mutex);
  --core_->all_connections;
  core_->changed.notify_all();
}

std::uint64_t HttpConnection::begin_answer() {
  phase_ = Phase::kAnswering;
  disarm();
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  is_streaming_ = has_end_ = is_cut_ = is_gone_ = false;
  return ++answer_;
}

std::string HttpConnection::head_of(int status, const HttpHeaders& headers,
                                    std::optional<std::size_t> length) const {
  std::string head = "HTTP/1.1 " + std::to_string(status) + " ";
  head.append(http_reason(status)).append("\r\n");
  append_http_header(head, "Date", http_date());
  for (const HttpHeader& header : headers) append_http_header(head, header.name, header.value);
  const bool has_body = status >= 200 && status != 204 && status != 304;
  if (has_body && length.has_value()) {
    append_http_header(head, "Content-Length", std::to_string(*length));
  } else if (has_body && !is_old_) {
    append_http_header(head, "Transfer-Encoding", "chunked");
  }
  const bool closes = !keeps_alive_ || core_->is_ending || (is_old_ && !length.has_value());
  if (closes) {
    append_http_header(head, "Connection", "close");
  } else if (is_old_) {
    append_http_header(head, "Connection", "keep-alive");
  }
  return head + "\r\n";
}

void HttpConnection::reply(std::uint64_t answer, const HttpReply& reply) {
  const std::lock_guard lock(mutex_);
  if (!is_current(answer) || is_streaming_) return;
  push(head_of(reply.status, reply.headers, reply.body.size()));
  if (!is_head_ && reply.status != 304 && reply.status != 204) push(reply.body);
  is_open_ = false;
  has_end_ = true;
  gone_ = nullptr;
  schedule_flush();
}

void HttpConnection::begin(std::uint64_t answer, int status, const HttpHeaders& headers) {
  const std::lock_guard lock(mutex_);
  if (!is_current(answer) || is_streaming_) return;
  is_streaming_ = true;
  if (is_gone_) return;
  push(head_of(status, headers, std::nullopt));
  schedule_flush();
}

bool HttpConnection::write(std::uint64_t answer, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (!is_current(answer) || !is_streaming_ || is_gone_ || is_cut_) return false;
  if (bytes.empty() || is_head_) return true;
  if (unsent_ + bytes.size() > core_->options.max_queued_bytes) {
    is_cut_ = true;
    schedule_flush();
    return false;
  }
  if (!is_old_) push(chunk_size_line(bytes.size()));
  push(bytes);
  if (!is_old_) push("\r\n");
  schedule_flush();
  return true;
}

void HttpConnection::end(std::uint64_t answer) {
  const std::lock_guard lock(mutex_);
  if (!is_current(answer) || !is_streaming_) return;
  if (!is_old_ && !is_head_ && !is_gone_) push("0\r\n\r\n");
  is_open_ = false;
  has_end_ = true;
  gone_ = nullptr;
  schedule_flush();
}

void HttpConnection::abort(std::uint64_t answer) {
  const std::lock_guard lock(mutex_);
  if (!is_current(answer)) return;
  is_open_ = false;
  is_cut_ = true;
  gone_ = nullptr;
  schedule_flush();
}

void HttpConnection::on_gone(std::uint64_t answer, std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_current(answer) && !(is_lost_ && answer == answer_)) return;
    if (!is_gone_) {
      gone_ = std::move(callback);
      return;
    }
  }
  callback();
}

void HttpConnection::drop(std::uint64_t answer) {
  const std::lock_guard lock(mutex_);
  if (!is_current(answer) || is_closed_) return;
  boost::asio::post(core_->io, [self = shared_from_this(), answer, streams = is_streaming_] {
    if (streams) return self->abort(answer);
    self->reply(answer, self->core_->handler.error(500, "the request was dropped"));
  });
}

void HttpConnection::push(std::string_view bytes) {
  pending_.append(bytes);
  unsent_ += bytes.size();
}

void HttpConnection::schedule_flush() {
  if (is_scheduled_ || is_closed_) return;
  is_scheduled_ = true;
  boost::asio::post(core_->io, [self = shared_from_this()] { self->flush(); });
}

void HttpConnection::flush() {
  bool is_done = false;
  bool is_cut = false;
  {
    const std::lock_guard lock(mutex_);
    is_scheduled_ = false;
    if (is_closed_) return;
    is_cut = is_cut_;
    if (!is_cut && !is_writing_) {
      writing_.clear();
      written_ = 0;
      writing_.swap(pending_);
      is_done = writing_.empty() && has_end_;
    }
  }
  if (is_cut) return close();
  if (is_writing_) return;
  if (!writing_.empty()) return write_some();
  if (is_done && phase_ == Phase::kAnswering) finish_answer();
}

void HttpConnection::write_some() {
  is_writing_ = true;
  arm(core_->options.write_seconds, &HttpConnection::close);
  const std::size_t size = std::min(writing_.size() - written_, kHttpWriteBytes);
  socket_.async_write_some(boost::asio::buffer(writing_.data() + written_, size),
                           [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                             self->on_written(error, bytes);
                           });
}

void HttpConnection::on_written(ErrorCode error, std::size_t bytes) {
  is_writing_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) return close();
  disarm();
  written_ += bytes;
  {
    const std::lock_guard lock(mutex_);
    unsent_ -= bytes;
  }
  if (written_ < writing_.size()) return write_some();
  flush();
}

void HttpConnection::finish_answer() {
  bool is_gone = false;
  bool is_whole = true;
  {
    const std::lock_guard lock(mutex_);
    has_end_ = false;
    is_gone = is_gone_;
    is_whole = !(is_streaming_ && is_old_);
    if (pending_.capacity() > kHttpKeptBytes) pending_ = {};
  }
  if (writing_.capacity() > kHttpKeptBytes) writing_ = {};
  if (is_gone) return close();
  if (!keeps_alive_ || !is_whole || core_->is_ending) return linger();
  phase_ = Phase::kIdle;
  if (!is_watching_) return wait_for_request();
  if (buffer_.size() == 0) return arm(core_->options.idle_seconds, &HttpConnection::close);
  ErrorCode ignored;
  socket_.cancel(ignored);  // the next request is there already: on_watched() goes on with it
}

void HttpConnection::set_gone() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    callback = std::exchange(gone_, nullptr);
  }
  if (callback) callback();
}

void HttpConnection::arm(double seconds, void (HttpConnection::*then)()) {
  const std::uint64_t number = ++timer_number_;
  timer_.expires_after(std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::max(0.0, seconds))));
  timer_.async_wait([self = shared_from_this(), number, then](ErrorCode error) {
    if (!error && number == self->timer_number_) (self.get()->*then)();
  });
}

void HttpConnection::disarm() {
  ++timer_number_;
  timer_.cancel();
}

namespace {

class HttpResponseWriter final : public ResponseWriter {
 public:
  HttpResponseWriter(std::shared_ptr<HttpConnection> connection, std::uint64_t answer)
      : connection_(std::move(connection)), answer_(answer) {}
  HttpResponseWriter(const HttpResponseWriter&) = delete;
  HttpResponseWriter& operator=(const HttpResponseWriter&) = delete;
  ~HttpResponseWriter() override { connection_->drop(answer_); }

  void reply(HttpReply reply) override { connection_->reply(answer_, reply); }
  void begin(int status, HttpHeaders headers) override {
    connection_->begin(answer_, status, headers);
  }
  bool write(std::string bytes) override { return connection_->write(answer_, bytes); }
  void end() override { connection_->end(answer_); }
  void abort() override { connection_->abort(answer_); }
  void on_gone(std::function<void()> callback) override {
    connection_->on_gone(answer_, std::move(callback));
  }

 private:
  const std::shared_ptr<HttpConnection> connection_;
  const std::uint64_t answer_;
};

}  // namespace

std::shared_ptr<ResponseWriter> make_response_writer(std::shared_ptr<HttpConnection> connection,
                                                     std::uint64_t answer) {
  return std::make_shared<HttpResponseWriter>(std::move(connection), answer);
}

}  // namespace moepack
