// One answer between the service and a client: starts it, writes it, keeps the client awake, and
// stops it when the client leaves.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/http/response_writer.h"
#include "runtime/serve/answer_writer.h"
#include "runtime/serve/request_log.h"
#include "runtime/serve/server_metrics.h"
#include "runtime/serve/worker_pool.h"
#include "runtime/service/answer_service.h"

namespace moepack {

// What a session needs of its server, and what outlives it.
struct SessionContext {
  AnswerService& service;
  WorkerPool& workers;  // where answers are cancelled and forgotten
  ServerMetrics& metrics;
  std::string request_id;
  ErrorFormat errors = openai_error_body;
  HttpHeaders headers;                    // of every answer: x-request-id, CORS
  std::shared_ptr<RequestRecord> record;  // gets the tokens, before the answer ends; never null
};

// A reply with an error in a protocol's words, Retry-After and x-should-retry. `headers` are put
// before its own.
HttpReply error_reply(const ApiError& error, ErrorFormat format, const std::string& request_id,
                      HttpHeaders headers);

// Functions may be called from any thread. The service holds it until its last event.
class AnswerSession : public std::enable_shared_from_this<AnswerSession> {
 public:
  using Clock = std::chrono::steady_clock;

  AnswerSession(SessionContext context, AnswerJob job, std::shared_ptr<ResponseWriter> response);

  // Once, in a worker. A refusal is answered with its status; else the headers of a stream go out
  // before anything is computed.
  void start();
  // Sends something when nothing was sent since `before`.
  void keep_awake(Clock::time_point before);
  // Ends it because the server ends. `waiting_alone`: only if it waits in the queue.
  void cancel(bool waiting_alone);
  // The context ends before the service does: later events are dropped.
  void forget();
  bool has_ended() const;

 private:
  std::uint32_t choices_of(std::size_t request) const;
  std::size_t request_count() const;
  void start_all();
  AnswerService::Started start_request(std::size_t index, std::uint32_t offset);
  // Where the queue is full of this session's own requests, the rest starts when one has ended.
  std::optional<Refusal> start_more();
  void start_rest();
  void end_rest(const std::optional<Refusal>& refusal);
  void hold(const std::shared_ptr<RunningAnswer>& answer);
  std::uint64_t ended_count();
  bool waits_for_others(std::uint64_t ended_before);
  bool take_rest();  // whether there was one to start, which is the caller's then
  void refuse(const Refusal& refusal);
  void give_up();
  void drop_running();
  std::vector<std::shared_ptr<RunningAnswer>> running_now() const;
  std::vector<std::shared_ptr<RunningAnswer>> take_running();
  void accept();
  void take(std::uint32_t offset, AnswerEvent event);
  void process(const AnswerEvent& event);  // under mutex_
  void note(const AnswerEvent& event);     // under mutex_
  void send(std::string bytes);            // under mutex_
  // Under mutex_.
  void end_answer(std::uint32_t choice, const AnswerEnd& end);
  void cancel_later();  // under mutex_

  const SessionContext context_;
  AnswerJob job_;
  const std::shared_ptr<ResponseWriter> response_;
  const Clock::time_point begun_ = Clock::now();

  // Apart from mutex_, which a flood of events hardly ever leaves free: who ends the session must
  // not wait for it.
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> is_cancelled_{false};
  std::atomic<bool> is_computing_{false};  // out of the queue
  mutable std::mutex running_mutex_;       // of running_ alone; nothing else is done under it
  std::vector<std::shared_ptr<RunningAnswer>> running_;

  // Of whoever starts requests: start(), then one start_rest() after another.
  std::size_t next_request_ = 0;
  std::uint32_t started_choices_ = 0;

  std::mutex mutex_;                // of all below, and of the writer in job_
  std::vector<AnswerEvent> early_;  // events that came before accept()
  std::uint32_t choices_ = 0;       // of all requests
  std::uint32_t ended_choices_ = 0;
  bool has_rest_ = false;  // requests that start_rest() will start
  bool is_accepted_ = false;
  Clock::time_point last_sent_ = begun_;
  std::vector<std::optional<Clock::time_point>> last_texts_;  // of each choice that has any
};

}  // namespace moepack
