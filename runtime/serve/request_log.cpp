#include "runtime/serve/request_log.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <utility>

#include "formats/base/status.h"
#include "runtime/serve/server_metrics.h"

namespace moepack {
namespace {

constexpr std::size_t kMostPathCharacters = 120;

class RecordingWriter final : public ResponseWriter {
 public:
  RecordingWriter(std::shared_ptr<ResponseWriter> writer, std::shared_ptr<RequestRecord> record,
                  RequestSink sink)
      : writer_(std::move(writer)), record_(std::move(record)), sink_(std::move(sink)) {}
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;
  ~RecordingWriter() override {
    if (status_ == 0) status_ = 500;  // as what it writes to says it
    tell();
  }

  void reply(HttpReply reply) override {
    status_ = reply.status;
    writer_->reply(std::move(reply));
    tell();
  }
  void begin(int status, HttpHeaders headers) override {
    status_ = status;
    writer_->begin(status, std::move(headers));
  }
  bool write(std::string bytes) override { return writer_->write(std::move(bytes)); }
  void end() override {
    writer_->end();
    tell();
  }
  void abort() override {
    writer_->abort();
    tell();
  }
  void on_gone(std::function<void()> callback) override { writer_->on_gone(std::move(callback)); }

 private:
  void tell() {
    if (is_told_.exchange(true)) return;
    record_->status = status_;
    record_->seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
    sink_(*record_);
  }

  const std::shared_ptr<ResponseWriter> writer_;
  const std::shared_ptr<RequestRecord> record_;
  const RequestSink sink_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::atomic<int> status_{0};
  std::atomic<bool> is_told_{false};
};

}  // namespace

std::string request_line(const RequestRecord& record) {
  std::string line = record.method.empty() ? "-" : printable(record.method, 20);
  line += " " + (record.path.empty() ? "-" : printable(record.path, kMostPathCharacters));
  line += " " + std::to_string(record.status);
  line += " " + std::to_string(std::llround(record.seconds * 1000)) + " ms";
  if (!record.reason.has_value()) return line;
  line += ", prompt " + std::to_string(record.prompt_tokens);
  if (record.cached_tokens > 0) line += " (" + std::to_string(record.cached_tokens) + " kept)";
  line += ", answer " + std::to_string(record.tokens);
  return line + ", " + end_reason_label(*record.reason);
}

std::shared_ptr<ResponseWriter> with_record(std::shared_ptr<ResponseWriter> writer,
                                            std::shared_ptr<RequestRecord> record,
                                            RequestSink sink) {
  return std::make_shared<RecordingWriter>(std::move(writer), std::move(record), std::move(sink));
}

}  // namespace moepack
