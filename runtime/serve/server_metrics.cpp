#include "runtime/serve/server_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "formats/base/elapsed.h"

namespace moepack {
namespace {

constexpr std::array<double, 16> kBucketSeconds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                   2.5,   5,    10,    30,   60,  120,  300, 1200};
const std::string kMetricPrefix = "moepack:";

std::string metric_number(double value) {
  if (!std::isfinite(value)) value = 0;
  std::array<char, 40> text{};
  const int size = std::snprintf(text.data(), text.size(), "%.10g", value);
  return {text.data(), static_cast<std::size_t>(size)};
}

std::string metric_head(const std::string& name, const char* type, const std::string& help) {
  const std::string full = kMetricPrefix + name;
  return "# HELP " + full + " " + help + "\n# TYPE " + full + " " + type + "\n";
}

std::string metric(const std::string& name, const char* type, const std::string& help,
                   double value) {
  return metric_head(name, type, help) + kMetricPrefix + name + " " + metric_number(value) + "\n";
}

std::string counter(const std::string& name, const std::string& help, std::uint64_t value) {
  return metric_head(name, "counter", help) + kMetricPrefix + name + " " + std::to_string(value) +
         "\n";
}

std::string token_metrics(const ServiceStats& s) {
  return counter("prompt_tokens_total", "Tokens of prompts that were computed.", s.prompt_tokens) +
         metric("prompt_seconds_total", "counter", "Seconds spent on prompts.", s.prompt_seconds) +
         counter("tokens_predicted_total", "Tokens that were generated.", s.answer_tokens) +
         metric("tokens_predicted_seconds_total", "counter", "Seconds spent on generating.",
                s.decode_seconds) +
         counter("n_decode_total", "Steps of generation, of all sequences together.",
                 s.decode_steps) +
         metric("prompt_tokens_seconds", "gauge", "Mean speed of prompts, tokens a second.",
                per_second(s.prompt_tokens, s.prompt_seconds)) +
         metric("predicted_tokens_seconds", "gauge", "Mean speed of generation, tokens a second.",
                per_second(s.decode_tokens, s.decode_seconds)) +
         metric("n_busy_slots_per_decode", "gauge", "Mean sequences of a step of generation.",
                per_second(s.decode_tokens, static_cast<double>(s.decode_steps)));
}

std::string state_metrics(const ServiceStats& s) {
  const double capacity = static_cast<double>(std::max<std::uint64_t>(1, s.kv_capacity));
  return metric("requests_processing", "gauge", "Requests that run.",
                static_cast<double>(s.requests_running)) +
         metric("requests_deferred", "gauge", "Requests that wait.",
                static_cast<double>(s.requests_waiting)) +
         metric("kv_cache_usage_ratio", "gauge", "Share of keys and values in use.",
                static_cast<double>(s.kv_tokens) / capacity) +
         counter("prefix_tokens_reused_total", "Tokens of prompts taken from kept states.",
                 s.cached_tokens) +
         counter("checkpoint_restores_total", "States that were taken up again.",
                 s.snapshot_restores) +
         metric("checkpoints", "gauge", "States that are kept.", static_cast<double>(s.snapshots)) +
         metric("checkpoint_bytes", "gauge", "Bytes of them.",
                static_cast<double>(s.snapshot_bytes)) +
         counter("expert_cache_hits_total", "Uses of experts that were in memory.", s.expert_hits) +
         counter("expert_cache_misses_total", "Uses of experts that were read.", s.expert_misses) +
         counter("expert_bytes_read_total", "Bytes of experts read.", s.expert_bytes_read) +
         metric("ssd_read_seconds_total", "counter", "Seconds in which experts were read.",
                s.read_seconds);
}

}  // namespace

const char* end_reason_label(AnswerEndReason reason) {
  switch (reason) {
    case AnswerEndReason::kStop:
      return "stop";
    case AnswerEndReason::kStopText:
      return "stop_text";
    case AnswerEndReason::kToolCalls:
      return "tool_calls";
    case AnswerEndReason::kLength:
      return "length";
    case AnswerEndReason::kContext:
      return "context";
    case AnswerEndReason::kCancelled:
      return "cancelled";
    case AnswerEndReason::kError:
      return "error";
  }
  return "error";
}

SecondsHistogram::SecondsHistogram() : counts_(kBucketSeconds.size() + 1, 0) {}

void SecondsHistogram::add(double seconds) {
  const auto* at = std::lower_bound(kBucketSeconds.begin(), kBucketSeconds.end(), seconds);
  ++counts_[static_cast<std::size_t>(at - kBucketSeconds.begin())];
  sum_ += seconds;
}

std::string SecondsHistogram::text(const std::string& name, const std::string& help) const {
  std::string text = metric_head(name, "histogram", help);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    const std::string limit = i < kBucketSeconds.size() ? metric_number(kBucketSeconds[i]) : "+Inf";
    text += kMetricPrefix + name + "_bucket{le=\"" + limit + "\"} " + std::to_string(count) + "\n";
  }
  text += kMetricPrefix + name + "_sum " + metric_number(sum_) + "\n";
  return text + kMetricPrefix + name + "_count " + std::to_string(count) + "\n";
}

void ServerMetrics::add_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void ServerMetrics::add_next_token(double seconds) {
  const std::lock_guard lock(mutex_);
  next_token_.add(seconds);
}

void ServerMetrics::add_answer(double seconds, AnswerEndReason reason) {
  const std::lock_guard lock(mutex_);
  answers_.add(seconds);
  ++ended_[end_reason_label(reason)];
}

void ServerMetrics::add_reply(int status) {
  const std::lock_guard lock(mutex_);
  ++replies_[status];
}

std::string ServerMetrics::text(const ServiceStats& service, const HttpStats& http) const {
  std::string text = token_metrics(service) + state_metrics(service);
  text += metric("http_connections", "gauge", "Open connections.",
                 static_cast<double>(http.connections));
  text += counter("http_connections_total", "Connections that were accepted.", http.accepted);
  const std::lock_guard lock(mutex_);
  text += first_token_.text("time_to_first_token_seconds", "From a request to its first token.");
  text += next_token_.text("inter_token_latency_seconds", "From a piece of text to the next.");
  text += answers_.text("e2e_request_latency_seconds", "From a request to the end of its answer.");
  text += metric_head("request_success_total", "counter", "Answers by their end.");
  for (const auto& [reason, count] : ended_) {
    text += kMetricPrefix + "request_success_total{finished_reason=\"" + reason + "\"} " +
            std::to_string(count) + "\n";
  }
  text += metric_head("http_replies_total", "counter", "Replies by their status.");
  for (const auto& [status, count] : replies_) {
    text += kMetricPrefix + "http_replies_total{status=\"" + std::to_string(status) + "\"} " +
            std::to_string(count) + "\n";
  }
  return text;
}

}  // namespace moepack
