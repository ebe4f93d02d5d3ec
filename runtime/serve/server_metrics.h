// What the server counts of its answers, in the form that Prometheus reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/http/http_server.h"
#include "runtime/service/answer_events.h"
#include "runtime/service/answer_service.h"

namespace moepack {

// "stop", "length", "cancelled", …
const char* end_reason_label(AnswerEndReason reason);

// A Prometheus histogram over seconds.
class SecondsHistogram {
 public:
  SecondsHistogram();
  void add(double seconds);
  // # HELP, # TYPE, buckets, sum and count.
  std::string text(const std::string& name, const std::string& help) const;

 private:
  std::vector<std::uint64_t> counts_;  // of each bucket, the last without a limit
  double sum_ = 0;
};

// Functions may be called from any thread.
class ServerMetrics {
 public:
  void add_first_token(double seconds);  // since the request came
  void add_next_token(double seconds);   // since the one before
  void add_answer(double seconds, AnswerEndReason reason);
  void add_reply(int status);

  // The page of /metrics.
  std::string text(const ServiceStats& service, const HttpStats& http) const;

 private:
  mutable std::mutex mutex_;  // of all below
  SecondsHistogram first_token_, next_token_, answers_;
  std::map<std::string, std::uint64_t> ended_;  // by finish reason
  std::map<int, std::uint64_t> replies_;        // by status
};

}  // namespace moepack
