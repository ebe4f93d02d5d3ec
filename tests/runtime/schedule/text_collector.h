// A listener that keeps what it is told, and jobs for tests.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/schedule/scheduler.h"

namespace moepack::test {

class TextCollector final : public TextListener {
 public:
  void on_queued(std::size_t before) override {
    const std::lock_guard lock(mutex_);
    queued_.push_back(before);
  }
  void on_started(std::uint64_t, std::uint64_t) override {
    const std::lock_guard lock(mutex_);
    ++starts_;
    changed_.notify_all();
  }
  void on_prompt(std::uint64_t done, double) override {
    const std::lock_guard lock(mutex_);
    prompt_done_.push_back(done);
    changed_.notify_all();
  }
  void on_prompt_token(const TokenStep& step) override { prompt_steps_.push_back(step); }
  Next on_token(const TokenStep& step) override {
    const std::lock_guard lock(mutex_);
    steps_.push_back(step);
    changed_.notify_all();
    return next_of ? next_of(steps_.size()) : Next{};
  }
  void on_end(TextEnd end, const Status& status, const TextTimes& times) override {
    const std::lock_guard lock(mutex_);
    ++ends_;
    end_ = end;
    status_ = status;
    times_ = times;
    ended_at_ = std::chrono::steady_clock::now();
    changed_.notify_all();
  }

  // Wait for the end; false after a minute without it.
  bool wait_end() {
    return wait([this] { return ends_ > 0; });
  }
  bool wait_start() {
    return wait([this] { return starts_ > 0 || ends_ > 0; });
  }
  bool wait_tokens(std::size_t count) {
    return wait([this, count] { return steps_.size() >= count || ends_ > 0; });
  }
  bool wait_prompt(std::uint64_t done) {
    return wait([this, done] {
      return ends_ > 0 || (!prompt_done_.empty() && prompt_done_.back() >= done);
    });
  }

  // After the end.
  std::vector<std::int32_t> tokens() const {
    std::vector<std::int32_t> ids;
    for (const TokenStep& step : steps_) ids.push_back(step.token.id);
    return ids;
  }
  const std::vector<TokenStep>& steps() const { return steps_; }
  const std::vector<TokenStep>& prompt_steps() const { return prompt_steps_; }
  const std::vector<std::uint64_t>& prompt_done() const { return prompt_done_; }
  std::vector<std::size_t> queued() const {
    const std::lock_guard lock(mutex_);
    return queued_;
  }
  TextEnd end() const { return end_; }
  const Status& status() const { return status_; }
  const TextTimes& times() const { return times_; }
  int ends() const { return ends_; }
  int starts() const { return starts_; }
  std::chrono::steady_clock::time_point ended_at() const { return ended_at_; }

  // What follows token number n (from 1); set before submitting.
  std::function<Next(std::size_t)> next_of;

 private:
  template <typename Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(300), condition);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> queued_;
  std::vector<std::uint64_t> prompt_done_;
  std::vector<TokenStep> steps_;
  std::vector<TokenStep> prompt_steps_;
  TextEnd end_ = TextEnd::kError;
  Status status_;
  TextTimes times_;
  int ends_ = 0;
  int starts_ = 0;
  std::chrono::steady_clock::time_point ended_at_;
};

// Ids that no two (length, factor) share from the start on.
inline std::vector<std::int32_t> prompt_of(std::size_t count, std::size_t factor,
                                           std::size_t vocab = 288) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int32_t>(((i + 1) * factor + i * i % 7) % vocab);
  }
  return ids;
}

inline TextJob greedy_job(std::vector<std::int32_t> prompt, std::uint64_t tokens) {
  TextJob job;
  job.prompt = std::move(prompt);
  job.max_tokens = tokens;
  job.sampling.temperature = 0;
  return job;
}

}  // namespace moepack::test
