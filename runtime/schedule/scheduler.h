// Many texts on one model: a thread that owns the engine computes a step of all running sequences
// in one forward, prompts in slices between them, and keeps states for the next turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "runtime/token_chances.h"
#include "runtime/token_filter.h"

namespace moepack {

enum class TextEnd : std::uint8_t { kStopToken, kStopped, kLength, kContext, kCancelled, kError };

struct TextTimes {
  double prompt_seconds = 0, decode_seconds = 0;
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, decode_tokens = 0;
};

// Called in the scheduler's thread, must not block.
class TextListener {
 public:
  virtual ~TextListener() = default;
  virtual void on_queued(std::size_t before) = 0;
  virtual void on_started(std::uint64_t prompt_tokens, std::uint64_t cached_tokens) = 0;
  virtual void on_prompt(std::uint64_t done, double seconds) = 0;
  // With TextJob::prompt_logprobs: of tokens 1.. of the prompt, in order.
  virtual void on_prompt_token(const TokenStep& step) = 0;
  // What comes next in the text besides the token: nothing, or ids that are forced after it (the
  // end of thoughts when a budget is spent); false in `goes_on` ends the text (a stop text came).
  struct Next {
    bool goes_on = true;
    std::vector<std::int32_t> forced;
  };
  virtual Next on_token(const TokenStep& step) = 0;
  virtual void on_end(TextEnd end, const Status& status, const TextTimes& times) = 0;
};

// A text to be made.
struct TextJob {
  std::vector<std::int32_t> prompt;  // not empty
  // Lengths of beginnings of the prompt after which a state is worth keeping, ascending.
  std::vector<std::uint64_t> snapshots;
  std::uint64_t max_tokens = 0;  // 0: the prompt alone (it warms the cache, or echoes)
  bool has_limit = true;         // else to the end of the context
  std::vector<std::int32_t> stop_ids;
  SamplerOptions sampling;
  std::uint32_t choices = 1;  // sequences from the same prompt; seeds count up
  std::optional<std::uint32_t> top_logprobs;  // TokenStep::top has so many
  bool prompt_logprobs = false;
  // One for each choice, or null.
  std::function<std::unique_ptr<TokenFilter>()> make_filter;
};

struct SchedulerOptions {
  std::uint32_t parallel = 1;  // sequences that run at once (EngineOptions::sequences has
                               // room for them and for those that are kept)
  std::size_t queue_limit = 32;
  std::uint64_t slice_tokens = 512;     // of a prompt, between decode steps
  std::uint64_t snapshot_bytes = 0;     // memory of kept recurrent states
  std::uint64_t snapshot_every = 2048;  // tokens of a long prompt
  std::filesystem::path save_path;      // kept states on disk; empty: none
};

// A listener for each choice. cancel() from any thread.
class TextTicket {
 public:
  virtual ~TextTicket() = default;
  virtual void cancel() = 0;
};

// Counters since the start, and gauges.
struct SchedulerStats {
  std::uint64_t running = 0, waiting = 0;             // texts
  std::uint64_t prompt_tokens = 0;                    // computed
  std::uint64_t cached_tokens = 0;                    // of prompts, that were not computed
  std::uint64_t decode_tokens = 0, decode_steps = 0;  // a step: one forward for all that decode
  double prompt_seconds = 0, decode_seconds = 0;
  std::uint64_t snapshots = 0, snapshot_bytes = 0, snapshot_restores = 0;
  std::uint64_t kv_tokens = 0, kv_capacity = 0;  // of all slots
  ExpertStoreStats experts;                      // as of the last step
};

struct SlotView {
  std::uint32_t id = 0;
  bool is_processing = false;
  std::uint64_t prompt_tokens = 0, prompt_done = 0, cached_tokens = 0, decoded = 0;
  std::int64_t remaining = -1;  // tokens; -1: no limit
};

class Scheduler {
 public:
  // The engine is used by the scheduler's thread alone until the scheduler is gone.
  static Result<std::unique_ptr<Scheduler>> start(Engine& engine, const SchedulerOptions& options);
  virtual ~Scheduler() = default;
  // Any thread. nullptr when the queue is full or the scheduler ends; else the listeners are told.
  virtual std::unique_ptr<TextTicket> submit(
      TextJob job, std::vector<std::shared_ptr<TextListener>> listeners) = 0;
  // Any thread, without waiting for a step.
  virtual SchedulerStats stats() const = 0;
  virtual std::vector<SlotView> slots() const = 0;
  // The state of a slot under SchedulerOptions::save_path, as a file of this plain name; they wait
  // until the slot is idle, and give the tokens of the state. kUnsupported without a save_path,
  // kInvalidArgument for another name or slot.
  virtual Result<std::uint64_t> save_slot(std::uint32_t slot, const std::string& name) = 0;
  virtual Result<std::uint64_t> restore_slot(std::uint32_t slot, const std::string& name) = 0;
  virtual Status erase_slot(std::uint32_t slot) = 0;
  // Takes nothing more; waits for what runs, at most so many seconds, then cancels the rest.
  virtual void finish(double grace_seconds) = 0;
};

}  // namespace moepack
