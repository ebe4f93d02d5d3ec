// A text on its way: what is computed of its prompt, and what comes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "formats/base/elapsed.h"
#include "runtime/schedule/kept_text.h"
#include "runtime/schedule/text_place.h"
#include "runtime/schedule/text_queue.h"
#include "runtime/schedule/text_sampler.h"
#include "runtime/slice.h"

namespace moepack {

// How an engine wants prompts and steps cut.
struct SliceRules {
  std::uint64_t chunk_tokens = 512;  // rows of a batch
  std::uint64_t cut_tokens = 1;      // Engine::cut_tokens()
  std::uint64_t decode_rows = 1;     // Engine::decode_rows()
  std::uint64_t slice_tokens = 512;
  std::uint64_t snapshot_every = 2048;
  bool keeps_snapshots = true;  // false: there is no memory for any

  bool may_mix() const { return cut_tokens == 1; }  // a slice of a prompt with decoding rows
};

// Where a prompt is cut for snapshots: ascending, behind `begin` and before the prompt's end, each
// with whether it was asked for. Places that were asked for become multiples of cut_tokens. Without
// any near the end, there is one a token before it, so that the same prompt costs no more again.
std::vector<std::pair<std::uint64_t, bool>> snapshot_places(const TextJob& job,
                                                            const SliceRules& rules,
                                                            std::uint64_t begin);

// Move-only in spirit: the slices it gives point into it, so it stays where it is. Used by the
// scheduler's thread. The kept text is the slot's; it outlives the run.
class TextRun {
 public:
  // `kept` has a sequence that has seen the first tokens of the prompt (prefix).
  TextRun(TextPlace place, KeptText& kept, TextSampler sampler, const SliceRules& rules,
          const UsablePrefix& prefix);
  // Another choice, behind the same prompt: `kept` has seen all of it and `first` is its first
  // token.
  TextRun(TextPlace place, KeptText& kept, TextSampler sampler, const SliceRules& rules,
          const TextRun& prompt_of, TokenStep first);
  TextRun(const TextRun&) = delete;
  TextRun& operator=(const TextRun&) = delete;

  const TextPlace& place() const { return place_; }
  KeptText& kept() const { return *kept_; }
  bool is_in_prompt() const { return kept_->tokens.size() < place_.job().prompt.size(); }
  bool is_ended() const { return end_.has_value(); }
  // Runs beside the `parallel` others (SchedulerOptions::short_tokens).
  bool is_extra() const { return is_extra_; }
  void set_extra() { is_extra_ = true; }
  // Kept until the end is told.
  void set_seat(TextSeat seat) { seat_ = std::move(seat); }
  bool is_cancelled() const { return place_.group->is_cancelled; }
  SlotView facts() const;

  // The next part of the prompt beside `rows` other rows, about `most` tokens of it (> 0), or the
  // token that comes next. Its sink draws what follows; `also` sees the same logits after the
  // prompt's last token.
  using AlsoDraw = std::function<Status(std::span<const float>)>;
  Slice prompt_slice(std::uint64_t rows, std::uint64_t most, const AlsoDraw& also);
  Slice decode_slice();
  // The slice has been computed with this status. Tells the listener, and ends the run when it is
  // time. Takes the snapshots that are due.
  void after_prompt(const Status& status);
  void after_decode(const Status& status);
  // Of a run of the second kind: takes its first token.
  void begin_choice();
  // Ends the run, if it has not ended; what it throws in on_end is dropped.
  void end(TextEnd end, const Status& status);
  // True with an error: the kept text is given up, and the run has ended.
  bool fail(const Status& status);

  bool is_last_slice() const { return is_last_slice_; }     // the slice ends the prompt
  std::uint64_t computed() const { return slice_.size(); }  // tokens of the last slice
  std::uint64_t decoded() const { return times_.decode_tokens; }
  const TextTimes& times() const { return times_; }
  // Tokens that may still come, while a slice that draws is computed: the one that it draws and
  // those behind it, to the job's limit and the end of the context.
  std::uint64_t remaining() const;

 private:
  std::uint64_t slice_end(std::uint64_t rows, std::uint64_t most) const;
  Status draw(std::span<const float> logits);
  Status note_prompt_token(std::size_t index, std::span<const float> logits);
  void take_drawn();
  void tell_prompt_steps();
  Slice slice_with_sink(std::size_t first_logits);

  TextPlace place_;
  KeptText* kept_;
  TextSampler sampler_;
  SliceRules rules_;
  TextTimes times_;
  std::vector<std::pair<std::uint64_t, bool>> places_;  // of snapshots to come
  Clock::time_point start_;                             // of the prompt, then of decoding
  std::span<const std::int32_t> slice_;
  std::int32_t next_ = -1;  // to be computed
  std::deque<std::int32_t> forced_;
  std::optional<TokenStep> drawn_;
  std::vector<TokenStep> prompt_steps_;  // of the slice, not told yet
  bool is_last_slice_ = false;
  bool is_extra_ = false;
  TextSeat seat_;
  std::optional<TextEnd> end_;
};

}  // namespace moepack
