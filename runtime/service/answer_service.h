// The model as servers and the chat see it: requests in, events out. Protocols are written against
// this interface, and tested with one that plays a script.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/chat/prompt_text.h"
#include "runtime/service/answer_events.h"
#include "runtime/service/answer_request.h"

namespace moepack {

// Why a request was not taken.
struct Refusal {
  enum class Kind : std::uint8_t {
    kInvalid,        // the request
    kContextLength,  // more tokens than the context has: prompt_tokens, context
    kBusy,           // the queue is full: try again in retry_seconds
    kEnding,         // the service ends
    kInternal,       // the template or the model: will fail again
  };
  Kind kind = Kind::kInvalid;
  std::string message;
  std::string parameter;  // the part of the request, e.g. "tools[0].function.name"; may be empty
  std::uint64_t prompt_tokens = 0, context = 0;
  std::uint32_t retry_seconds = 0;
};

// Called in a thread of the service, one event of a request after another; must not block or call
// the service. Nothing is called after the last choice's AnswerEnd.
using AnswerSink = std::function<void(AnswerEvent event)>;

// Dropping it cancels. cancel() may be called from any thread, and comes back at once; the
// AnswerEnd follows.
class RunningAnswer {
 public:
  virtual ~RunningAnswer() = default;
  virtual void cancel() = 0;
};

struct ServiceModel {
  std::string id;             // what clients call it
  std::uint64_t context = 0;  // tokens of a sequence
  std::uint64_t trained_context = 0;
  std::uint64_t vocabulary = 0;
  std::uint64_t parameters = 0;
  std::uint64_t file_bytes = 0;
  std::string chat_template;  // its source; empty: none
  std::string bos_token, eos_token;
  std::uint32_t parallel = 1;
  bool can_think = false;
  bool can_call_tools = false;
};

// Counters since the start, and gauges.
struct ServiceStats {
  std::uint64_t requests_running = 0, requests_waiting = 0;
  std::uint64_t prompt_tokens = 0, cached_tokens = 0;
  std::uint64_t answer_tokens = 0;                    // of all answers, thoughts included
  std::uint64_t decode_tokens = 0, decode_steps = 0;  // computed by steps of generation
  double prompt_seconds = 0, decode_seconds = 0;
  std::uint64_t expert_hits = 0, expert_misses = 0, expert_bytes_read = 0;
  double read_seconds = 0;
  std::uint64_t snapshots = 0, snapshot_bytes = 0, snapshot_restores = 0;
  std::uint64_t kv_tokens = 0, kv_capacity = 0;
};

struct SlotState {
  std::uint32_t id = 0;
  bool is_processing = false;
  std::uint64_t prompt_tokens = 0, prompt_done = 0, cached_tokens = 0, decoded = 0;
  std::int64_t remaining = -1;  // of max_tokens; -1: no limit
};

// How often each expert was used lately: [layers][experts], 0 cold to 255 warm, and whether it is
// in memory.
struct ExpertMap {
  std::uint32_t layers = 0, experts = 0;
  std::vector<std::uint8_t> warmth;
  std::vector<bool> is_resident;
};

// The experts that a GPU keeps while the processor computes the others.
struct HotState {
  bool is_active = false;  // there are any
  bool is_counting = false;
  double update_rate = 0;  // of the exchange after each request
  std::uint64_t experts = 0;
};

// What a new profile changed of them.
struct HotExchanged {
  bool is_active = false;  // there are any; else nothing happened
  double rate = 0;
  std::uint64_t candidates = 0, most = 0, exchanged = 0;
  std::uint64_t experts = 0;  // hot ones
  std::uint64_t layers = 0;   // that changed
};

// How a text is made into tokens.
struct TextReading {
  bool with_markers = true;  // added tokens in the text are recognised
  bool begins_text = false;  // what the tokenizer puts before a text is there
};

struct RenderedPrompt {
  PromptText text;
  std::vector<std::int32_t> ids;
};

// All functions may be called from any thread.
class AnswerService {
 public:
  virtual ~AnswerService() = default;
  using Started = std::variant<std::unique_ptr<RunningAnswer>, Refusal>;
  virtual Started start(const ChatRequest& request, AnswerSink sink) = 0;
  virtual Started start(const CompletionRequest& request, AnswerSink sink) = 0;

  // What never waits for the model: the prompt that start() would make of the request.
  virtual std::variant<RenderedPrompt, Refusal> render(const ChatRequest& request) const = 0;
  virtual std::variant<std::vector<std::int32_t>, Refusal> tokenize(
      std::string_view text, const TextReading& reading) const = 0;
  virtual std::string token_bytes(std::int32_t id) const = 0;
  virtual std::string detokenize(const std::vector<std::int32_t>& ids) const = 0;
  virtual ServiceModel model() const = 0;
  // What a request begins with that says nothing of sampling.
  virtual SamplerOptions sampling_defaults() const { return {}; }
  virtual ServiceStats stats() const = 0;
  virtual std::vector<SlotState> slots() const = 0;
  virtual ExpertMap expert_map() const = 0;
  // Of the state of a slot, beneath --slot-save-path; kUnsupported without it,
  // kInvalidArgument for what is no is_slot_name(). They wait for the slot to be idle.
  virtual Result<std::uint64_t> save_slot(std::uint32_t slot, const std::string& name) = 0;
  virtual Result<std::uint64_t> restore_slot(std::uint32_t slot, const std::string& name) = 0;
  virtual Result<std::uint64_t> erase_slot(std::uint32_t slot) = 0;

  // The hot experts (Engine::apply_hot_profile, lane_use, count_lanes). They wait for the step that
  // is computed, and what runs goes on with the new ones: its last bits may change.
  virtual HotState hot_state() const { return {}; }
  virtual Result<HotExchanged> apply_hot_profile(const std::string& /*json*/) {
    return HotExchanged{};
  }
  // JSON (lane_report_text()).
  virtual Result<std::string> lane_report() {
    return unsupported(Where{}, "this service has no lanes");
  }
  // Begins anew, or ends.
  virtual Status count_lanes(bool /*is_counting*/) {
    return unsupported(Where{}, "this service has no lanes");
  }
};

}  // namespace moepack
