#include "runtime/schedule/text_run.h"

#include <algorithm>
#include <utility>

#include "runtime/schedule/caught.h"

namespace moepack {
namespace {

// Prompts of fewer tokens are computed again sooner than a state is kept.
constexpr std::uint64_t kShortestKept = 64;

}  // namespace

std::vector<std::pair<std::uint64_t, bool>> snapshot_places(const TextJob& job,
                                                            const SliceRules& rules,
                                                            std::uint64_t begin) {
  std::vector<std::pair<std::uint64_t, bool>> places;
  if (!rules.keeps_snapshots) return places;
  const std::uint64_t end = job.prompt.size();
  const auto add = [&](std::uint64_t tokens, bool is_asked) {
    const std::uint64_t place = tokens / rules.cut_tokens * rules.cut_tokens;
    if (place > begin && place < end) places.emplace_back(place, is_asked);
  };
  for (const std::uint64_t tokens : job.snapshots) add(tokens, true);
  const bool has_end = std::any_of(job.snapshots.begin(), job.snapshots.end(), [&](auto tokens) {
    return tokens < end && tokens + kShortestKept >= end;
  });
  if (!has_end && end > kShortestKept) add(end - 1, true);
  if (rules.snapshot_every > 0) {
    for (std::uint64_t tokens = rules.snapshot_every; tokens < end;
         tokens += rules.snapshot_every) {
      add(tokens, false);
    }
  }
  // Of equal places the asked one stays.
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  const auto last = std::unique(places.begin(), places.end(),
                                [](const auto& a, const auto& b) { return a.first == b.first; });
  places.erase(last, places.end());
  return places;
}

TextRun::TextRun(TextPlace place, KeptText& kept, TextSampler sampler, const SliceRules& rules,
                 const UsablePrefix& prefix)
    : place_(std::move(place)),
      kept_(&kept),
      sampler_(std::move(sampler)),
      rules_(rules),
      places_(snapshot_places(place_.job(), rules, prefix.tokens)),
      start_(Clock::now()) {
  times_.prompt_tokens = place_.job().prompt.size();
  times_.cached_tokens = prefix.tokens;
}

TextRun::TextRun(TextPlace place, KeptText& kept, TextSampler sampler, const SliceRules& rules,
                 const TextRun& prompt_of, TokenStep first)
    : place_(std::move(place)),
      kept_(&kept),
      sampler_(std::move(sampler)),
      rules_(rules),
      times_{.prompt_seconds = prompt_of.times_.prompt_seconds,
             .prompt_tokens = prompt_of.times_.prompt_tokens,
             .cached_tokens = prompt_of.times_.cached_tokens},
      start_(Clock::now()),
      drawn_(std::move(first)) {}

SlotView TextRun::facts() const {
  SlotView facts{.is_processing = true,
                 .kept_tokens = kept_->tokens.size(),
                 .prompt_tokens = times_.prompt_tokens,
                 .prompt_done = std::min<std::uint64_t>(kept_->tokens.size(), times_.prompt_tokens),
                 .cached_tokens = times_.cached_tokens,
                 .decoded = times_.decode_tokens};
  if (place_.job().has_limit) {
    facts.remaining = static_cast<std::int64_t>(place_.job().max_tokens - times_.decode_tokens);
  }
  return facts;
}

// At the next place of a snapshot, and where results depend on it, at a multiple of cut_tokens.
std::uint64_t TextRun::slice_end(std::uint64_t rows, std::uint64_t most) const {
  const std::uint64_t begin = kept_->tokens.size();
  std::uint64_t end = place_.job().prompt.size();
  if (!places_.empty()) end = std::min(end, places_.front().first);
  if (rules_.may_mix()) {
    const std::uint64_t room = rules_.chunk_tokens > rows ? rules_.chunk_tokens - rows : 1;
    return std::min(end, begin + std::clamp<std::uint64_t>(most, 1, room));
  }
  const std::uint64_t cut = rules_.cut_tokens;
  if (begin % cut != 0) return std::min(end, (begin / cut + 1) * cut);
  return std::min(end, begin + std::max<std::uint64_t>(most / cut, 1) * cut);
}

// The token that comes out of the last position of the context is the last one.
std::uint64_t TextRun::remaining() const {
  const std::uint64_t position = kept_->tokens.size() + slice_.size();
  const std::uint64_t context = kept_->sequence->context();
  const std::uint64_t room = context > position ? context - position + 1 : 1;
  const TextJob& job = place_.job();
  return job.has_limit ? std::min(room, job.max_tokens - times_.decode_tokens) : room;
}

Status TextRun::draw(std::span<const float> logits) {
  if (forced_.empty()) {
    MOE_ASSIGN_OR_RETURN(drawn_, sampler_.draw(logits, remaining()));
  } else {
    MOE_ASSIGN_OR_RETURN(drawn_, sampler_.step_of(logits, forced_.front()));
  }
  return Status::ok();
}

Status TextRun::note_prompt_token(std::size_t index, std::span<const float> logits) {
  if (place_.choice != 0) return Status::ok();  // the first choice has told all
  const std::vector<std::int32_t>& prompt = place_.job().prompt;
  const std::size_t at = kept_->tokens.size() + index + 1;
  if (at >= prompt.size()) return Status::ok();
  const std::size_t top = place_.job().top_logprobs.value_or(0);
  MOE_ASSIGN_OR_RETURN(TokenStep step,
                       token_chances(logits.first(std::min(logits.size(), sampler_.vocab_limit())),
                                     prompt[at], top));
  prompt_steps_.push_back(std::move(step));
  return Status::ok();
}

Slice TextRun::slice_with_sink(std::size_t first_logits) {
  Slice slice{
      .sequence = &*kept_->sequence, .tokens = slice_, .first_logits = first_logits, .sink = {}};
  if (sampler_.takes_top()) {
    slice.top = [this](std::size_t, std::int32_t id) {
      drawn_ = TokenStep{.token = {.id = id}, .top = {}};
      return Status::ok();
    };
    slice.top_of = static_cast<std::uint32_t>(sampler_.vocab_limit());
  } else {
    slice.sink = [this](std::size_t, std::span<const float> logits) { return draw(logits); };
  }
  return slice;
}

Slice TextRun::prompt_slice(std::uint64_t rows, std::uint64_t most, const AlsoDraw& also) {
  const TextJob& job = place_.job();
  const std::uint64_t begin = kept_->tokens.size();
  slice_ = std::span(job.prompt).subspan(begin, slice_end(rows, most) - begin);
  is_last_slice_ = begin + slice_.size() == job.prompt.size();
  drawn_.reset();
  const bool draws = is_last_slice_ && (!job.has_limit || job.max_tokens > 0);
  if (!draws && !job.prompt_logprobs) {
    return {
        .sequence = &*kept_->sequence, .tokens = slice_, .first_logits = slice_.size(), .sink = {}};
  }
  if (!job.prompt_logprobs && !also) return slice_with_sink(slice_.size() - 1);
  Slice slice{.sequence = &*kept_->sequence,
              .tokens = slice_,
              .first_logits = job.prompt_logprobs ? 0 : slice_.size() - 1,
              .sink = {}};
  slice.sink = [this, draws, also](std::size_t index, std::span<const float> logits) -> Status {
    if (place_.job().prompt_logprobs) MOE_RETURN_IF_ERROR(note_prompt_token(index, logits));
    if (!draws || index + 1 != slice_.size()) return Status::ok();
    MOE_RETURN_IF_ERROR(draw(logits));
    return also ? also(logits) : Status::ok();
  };
  return slice;
}

Slice TextRun::decode_slice() {
  slice_ = std::span(&next_, 1);
  drawn_.reset();
  return slice_with_sink(0);
}

bool TextRun::fail(const Status& status) {
  if (status.is_ok()) return false;
  if (end_.has_value()) return true;
  kept_->clear();
  end(TextEnd::kError, status);
  return true;
}

void TextRun::after_prompt(const Status& status) {
  if (fail(status)) return;
  kept_->tokens.insert(kept_->tokens.end(), slice_.begin(), slice_.end());
  kept_->prompt_tokens = kept_->tokens.size();
  if (!places_.empty() && places_.front().first == kept_->tokens.size()) {
    // Without memory for a snapshot the text goes on, and is computed again another time.
    (void)kept_->take_snapshot(places_.front().second);
    places_.erase(places_.begin());
  }
  times_.prompt_seconds = seconds_since(start_);
  tell_prompt_steps();
  place_.listener().on_prompt(kept_->tokens.size(), times_.prompt_seconds);
  if (!is_last_slice_) return;
  start_ = Clock::now();
  if (!drawn_.has_value()) return end(TextEnd::kLength, Status::ok());
  take_drawn();
}

// Each choice echoes the prompt.
void TextRun::tell_prompt_steps() {
  for (const TokenStep& step : std::exchange(prompt_steps_, {})) {
    for (const std::shared_ptr<TextListener>& listener : place_.group->listeners) {
      listener->on_prompt_token(step);
    }
  }
}

void TextRun::after_decode(const Status& status) {
  if (fail(status)) return;
  kept_->tokens.push_back(next_);
  take_drawn();
}

void TextRun::begin_choice() { take_drawn(); }

// What was drawn, or what is forced instead of it, is the next token of the text.
void TextRun::take_drawn() {
  TokenStep step = std::move(*drawn_);
  drawn_.reset();
  times_.decode_seconds = seconds_since(start_);
  const bool is_forced = !forced_.empty();
  if (is_forced) {
    if (step.token.id != forced_.front()) step = {.token = {.id = forced_.front()}, .top = {}};
    forced_.pop_front();
  }
  const TextJob& job = place_.job();
  const std::int32_t id = step.token.id;
  if (!is_forced && std::find(job.stop_ids.begin(), job.stop_ids.end(), id) != job.stop_ids.end()) {
    times_.stop_id = id;
    return end(TextEnd::kStopToken, Status::ok());
  }
  sampler_.accept(id);
  ++times_.decode_tokens;
  TextListener::Next next = place_.listener().on_token(step);
  forced_.insert(forced_.end(), next.forced.begin(), next.forced.end());
  if (!next.goes_on) return end(TextEnd::kStopped, Status::ok());
  if (job.has_limit && times_.decode_tokens >= job.max_tokens) {
    return end(TextEnd::kLength, Status::ok());
  }
  if (kept_->tokens.size() >= kept_->sequence->context()) {
    return end(TextEnd::kContext, Status::ok());
  }
  next_ = id;
}

void TextRun::end(TextEnd end, const Status& status) {
  if (end_.has_value()) return;
  end_ = end;
  seat_.give_back();  // who is told may ask again at once
  (void)caught([&] { place_.listener().on_end(end, status, times_); });
}

}  // namespace moepack
