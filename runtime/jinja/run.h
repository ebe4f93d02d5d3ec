// One rendering: what it has spent, where it is, and what it must take apart at its end.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "runtime/jinja/error.h"
#include "runtime/jinja/limits.h"
#include "runtime/jinja/memory.h"

namespace moepack::jinja {

class Value;
struct Breakable;

// Used by one thread.
class Run {
 public:
  Run(const Limits& limits, std::tm clock)
      : limits_(limits), clock_(clock), memory_(limits.memory_bytes) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

  const Limits& limits() const { return limits_; }
  // The time that strftime_now() writes.
  const std::tm& clock() const { return clock_; }

  // Counts `steps` units of work.
  void charge(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.steps) fail_limit("steps", limits_.steps);
  }
  // Counts `more` bytes that are appended to a text of `size` bytes.
  void charge_text(std::size_t size, std::size_t more) {
    if (more > limits_.text_bytes || size > limits_.text_bytes - more) {
      fail_limit("bytes of one text", limits_.text_bytes);
    }
    charge_bytes(more);
  }
  // Counts a step for every 64 bytes; what is left over counts with the next ones.
  void charge_bytes(std::uint64_t bytes) {
    rest_ += bytes;
    charge(rest_ / 64);
    rest_ %= 64;
  }
  // Checks `count` items of a list that is about to be made.
  void charge_items(std::uint64_t count) { charge_items(count, 2 * count); }

  // What the values of this run hold.
  Memory& memory() { return memory_; }

  // Checks one more item of a list of `size` that grows.
  void charge_item(std::uint64_t size) { charge_items(size + 1, 2); }

  // Position of the expression or statement at work, for errors.
  Position at;

  // Containers may hold themselves; those that can are taken apart at the end of the run.
  void keep(const std::shared_ptr<Breakable>& container);

  // One level of recursion for as long as it lives.
  class Depth {
   public:
    explicit Depth(Run& run) : run_(run) {
      if (++run_.depth_ > run_.limits_.depth) {
        --run_.depth_;
        fail_limit("levels of nesting", run_.limits_.depth);
      }
    }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ~Depth() { --run_.depth_; }

   private:
    Run& run_;
  };

 private:
  static constexpr std::size_t kKeptBytes = 32;
  void charge_items(std::uint64_t count, std::uint64_t steps) {
    if (count > limits_.list_items) fail_limit("items of one list", limits_.list_items);
    charge(steps);
  }
  [[noreturn]] static void fail_limit(const char* what, std::uint64_t limit);
  const Limits& limits_;
  std::tm clock_;
  Memory memory_;
  std::uint64_t steps_ = 0;
  std::uint64_t rest_ = 0;  // bytes that made no step yet
  std::uint64_t depth_ = 0;
  std::vector<std::shared_ptr<Breakable>> kept_;
};

// What may be part of a circle of references.
struct Breakable {
  virtual ~Breakable() = default;
  virtual void break_circle() = 0;
  bool kept = false;  // by the run
};

inline void Run::keep(const std::shared_ptr<Breakable>& container) {
  if (container->kept) return;
  memory_.take(kKeptBytes);
  container->kept = true;
  kept_.push_back(container);
}

}  // namespace moepack::jinja
