// Many texts on one model: a thread that owns the engine computes a step of all running sequences
// in one forward, prompts in slices between them, and keeps states for the next turn.
//
// What a text gets does not depend on its neighbours: only as many tokens share a forward as give
// each the bits it has alone (Engine::decode_rows), and where results depend on how a prompt is cut
// (Engine::cut_tokens), prompts are cut at multiples of that alone, and reused up to such places.
// A state behind an answer is reused as it is: its tokens were computed one by one, so that there,
// where cut_tokens is not 1, the last bits may differ from those of a prompt computed anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "runtime/schedule/decode_turns.h"
#include "runtime/token_chances.h"
#include "runtime/token_filter.h"

namespace moepack {

enum class TextEnd : std::uint8_t { kStopToken, kStopped, kLength, kContext, kCancelled, kError };

struct TextTimes {
  double prompt_seconds = 0, decode_seconds = 0;
  std::uint64_t prompt_tokens = 0;  // of the prompt
  std::uint64_t cached_tokens = 0;  // of them: taken from a state kept before
  std::uint64_t decode_tokens = 0;  // given to on_token
  std::int32_t stop_id = -1;        // with kStopToken: the one that came
};

// Called in the scheduler's thread, must not block. What one throws ends its text with kError.
class TextListener {
 public:
  virtual ~TextListener() = default;
  virtual void on_queued(std::size_t before) = 0;
  virtual void on_started(std::uint64_t prompt_tokens, std::uint64_t cached_tokens) = 0;
  // `done` counts the cached tokens too.
  virtual void on_prompt(std::uint64_t done, double seconds) = 0;
  // With TextJob::prompt_logprobs: of tokens 1.. of the prompt, in order.
  virtual void on_prompt_token(const TokenStep& step) = 0;
  // What comes next in the text besides the token: nothing, or ids that are forced after it (the
  // end of thoughts when a budget is spent), which come to on_token too; false in `goes_on` ends
  // the text (a stop text came).
  struct Next {
    bool goes_on = true;
    std::vector<std::int32_t> forced;
  };
  virtual Next on_token(const TokenStep& step) = 0;
  // The last call. With kCancelled in the queue it is the only one but for on_queued.
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
  std::uint32_t choices = 1;                  // sequences from the same prompt; seeds count up
  std::optional<std::uint32_t> top_logprobs;  // TokenStep::top has so many
  bool reuses_states = true;                  // false: the whole prompt is computed
  bool prompt_logprobs = false;               // the same, and on_prompt_token is told
  // One for each choice, or null.
  std::function<std::unique_ptr<TokenFilter>()> make_filter;
};

struct SchedulerOptions {
  std::uint32_t parallel = 1;  // sequences that run at once. EngineOptions::sequences says how many
                               // are kept: at least as many; one more lets short texts run beside
                               // them (short_tokens) and keeps a conversation while another runs
  std::size_t queue_limit = 32;
  std::uint64_t slice_tokens = 512;         // of prompts, between decode steps
  std::uint64_t snapshot_bytes = 1U << 28;  // memory of kept recurrent states, all together
  std::uint64_t snapshot_every = 2048;      // tokens of a long prompt
  // A text of at most so many tokens that has to wait runs beside `parallel` others where a
  // sequence is free, one such at a time.
  std::uint64_t short_tokens = 64;
  // Whether texts decode together, or one after the other for a second or so each: the latter may
  // be faster where experts are read from a disk. Texts are the same either way.
  TurnUse turns = TurnUse::kTried;
  std::size_t vocab_limit = 0;           // ids below are drawn: Tokenizer::size(); 0: all
  std::filesystem::path save_path = {};  // folder of kept states; empty: none
};

// cancel() from any thread, not after the scheduler is gone; dropping it changes nothing.
class TextTicket {
 public:
  virtual ~TextTicket() = default;
  virtual void cancel() = 0;
};

// Counters since the start, and gauges; of one moment between two steps.
struct SchedulerStats {
  std::uint64_t running = 0, waiting = 0;  // texts, choices counted one by one once they run
  std::uint64_t prompt_tokens = 0, cached_tokens = 0;  // computed, and taken from kept states
  std::uint64_t answer_tokens = 0;                     // given to on_token
  std::uint64_t decode_tokens = 0, decode_steps = 0;   // a step is one forward of all that decode
  double prompt_seconds = 0, decode_seconds = 0;       // of forwards, by their rows
  std::uint64_t snapshots = 0, snapshot_bytes = 0, snapshot_restores = 0;
  std::uint64_t kv_tokens = 0, kv_capacity = 0;  // of all sequences
  ExpertStoreStats experts;
};

struct SlotView {
  std::uint32_t id = 0;
  bool is_processing = false;
  std::uint64_t kept_tokens = 0;    // that its sequence has seen
  std::uint64_t prompt_tokens = 0;  // of the text that runs
  std::uint64_t prompt_done = 0, cached_tokens = 0, decoded = 0;
  std::int64_t remaining = -1;  // tokens to its limit; -1: no limit
};

class Scheduler {
 public:
  // The engine is used by the scheduler's thread alone until the scheduler is gone.
  // kInvalidArgument where the engine has not room for `parallel` sequences.
  static Result<std::unique_ptr<Scheduler>> start(Engine& engine, const SchedulerOptions& options);
  // Cancels what runs.
  virtual ~Scheduler() = default;
  // Any thread. nullptr when the queue is full or the scheduler ends (is_ending()); else the
  // listeners, one for each choice, are told.
  virtual std::unique_ptr<TextTicket> submit(
      TextJob job, std::vector<std::shared_ptr<TextListener>> listeners) = 0;
  virtual bool is_ending() const = 0;
  // Takes nothing more and cancels what waits; waits for what runs, at most so many seconds, then
  // cancels the rest. Any thread but the scheduler's.
  virtual void finish(double grace_seconds) = 0;

  // Any thread, at once.
  virtual SchedulerStats stats() const = 0;
  virtual std::vector<SlotView> slots() const = 0;

  // The kept state of a slot to and from SchedulerOptions::save_path/`name`; give the tokens of it.
  // They wait for the slot to be idle; any thread but the scheduler's. kUnsupported without a
  // save_path, kInvalidArgument for a slot that is not there or a name that is no plain one, else
  // the errors of slot_file.h. An error leaves slot and file as they were.
  virtual Result<std::uint64_t> save_slot(std::uint32_t slot, const std::string& name) = 0;
  virtual Result<std::uint64_t> restore_slot(std::uint32_t slot, const std::string& name) = 0;
  virtual Result<std::uint64_t> erase_slot(std::uint32_t slot) = 0;

  // Runs `work` in the scheduler's thread between two steps, whatever runs, and gives its status;
  // any other thread. kInvalidArgument when the scheduler ends.
  virtual Status run_between(const std::function<Status(Engine&)>& work) = 0;
};

}  // namespace moepack
