#include "runtime/schedule/text_scheduler.h"

#include <algorithm>
#include <utility>

#include "runtime/schedule/caught.h"

namespace moepack {
namespace {

class GroupTicket final : public TextTicket {
 public:
  GroupTicket(std::shared_ptr<TextGroup> group, std::shared_ptr<TextScheduler::Door> door)
      : group_(std::move(group)), door_(std::move(door)) {}
  void cancel() override {
    if (group_->is_cancelled.exchange(true)) return;
    const std::lock_guard lock(door_->mutex);
    if (door_->scheduler != nullptr) door_->scheduler->wake();
  }

 private:
  std::shared_ptr<TextGroup> group_;
  std::shared_ptr<TextScheduler::Door> door_;
};

SliceRules slice_rules(const Engine& engine, const SchedulerOptions& options) {
  return {.chunk_tokens = engine.options().chunk_tokens,
          .cut_tokens = engine.cut_tokens(),
          .decode_rows = engine.decode_rows(),
          .slice_tokens = options.slice_tokens,
          .snapshot_every = options.snapshot_every,
          .keeps_snapshots = options.snapshot_bytes > 0};
}

// Ids below are drawn.
std::size_t drawn_ids(const Engine& engine, const SchedulerOptions& options) {
  const std::size_t all = engine.config().vocab_size;
  return options.vocab_limit == 0 ? all : std::min(options.vocab_limit, all);
}

// Experts that were read, when they were asked for or ahead.
std::uint64_t reads_of(const ExpertStoreStats& stats) { return stats.misses + stats.ahead_reads; }

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::start(Engine& engine,
                                                    const SchedulerOptions& options) {
  if (options.parallel == 0 || options.parallel > engine.options().sequences) {
    return invalid_argument("the engine has room for " +
                                std::to_string(engine.options().sequences) +
                                " sequences, not for " + std::to_string(options.parallel),
                            "give --parallel a number from 1 to that");
  }
  return std::unique_ptr<Scheduler>(std::make_unique<TextScheduler>(engine, options));
}

TextScheduler::TextScheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      rules_(slice_rules(engine, options)),
      queue_(options.queue_limit, options.parallel),
      slots_(engine, options.snapshot_bytes),
      steps_(engine, rules_),
      turns_(options.turns),
      vocab_limit_(drawn_ids(engine, options)),
      others_(vocab_limit_) {
  publish();
  door_->scheduler = this;
  thread_ = std::thread([this] { run(); });
}

TextScheduler::~TextScheduler() {
  {
    const std::lock_guard lock(door_->mutex);
    door_->scheduler = nullptr;
  }
  finish(0);
}

// ---- Any thread ----

void TextScheduler::wake() {
  {
    const std::lock_guard lock(mutex_);
    has_news_ = true;
  }
  wake_.notify_one();
}

std::unique_ptr<TextTicket> TextScheduler::submit(
    TextJob job, std::vector<std::shared_ptr<TextListener>> listeners) {
  auto group = std::make_shared<TextGroup>();
  group->job = std::move(job);
  group->listeners = std::move(listeners);
  const bool has_others = group->listeners.size() > 1;
  if (!queue_.offer({.group = group, .choice = 0, .has_others = has_others})) return nullptr;
  wake();
  return std::make_unique<GroupTicket>(std::move(group), door_);
}

bool TextScheduler::is_ending() const { return queue_.is_closed(); }

void TextScheduler::finish(double grace_seconds) {
  queue_.close();
  tasks_.close();
  {
    const std::lock_guard lock(mutex_);
    has_news_ = true;
    const auto grace = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(std::max(grace_seconds, 0.0)));
    const Clock::time_point deadline = Clock::now() + grace;
    deadline_ = deadline_.has_value() ? std::min(*deadline_, deadline) : deadline;
  }
  wake_.notify_one();
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) thread_.join();
}

SchedulerStats TextScheduler::stats() const {
  const std::lock_guard lock(mutex_);
  SchedulerStats stats = published_;
  stats.waiting = queue_.waiting();
  return stats;
}

std::vector<SlotView> TextScheduler::slots() const {
  const std::lock_guard lock(mutex_);
  return published_slots_;
}

// ---- The scheduler's thread ----

void TextScheduler::run() {
  while (wait_for_work()) {
    const Status status = caught([this] { do_round(); });
    if (!status.is_ok()) fail_all(status);
  }
  tasks_.fail_all();
}

void TextScheduler::do_round() {
  queue_.take_offered();
  end_cancelled();
  tasks_.do_ready(slots_.all(), [this] { publish(); });
  admit_waiting();
  drop_ended();  // what ended as it began
  tell_queue();
  step();
  if (drop_ended()) {
    const Status adapted = engine_.adapt_hot_experts().status();
    if (!adapted.is_ok()) fail_all(adapted);
  }
  publish();
}

// What no text answers for (no memory for the round itself): nothing is known of any of them.
void TextScheduler::fail_all(const Status& status) {
  for (const std::unique_ptr<TextRun>& run : runs_) fail_run(*run, status);
  drop_ended();
  while (queue_.begin() != queue_.end()) {
    end_in_queue(queue_.begin(), TextEnd::kError, status);
  }
}

void TextScheduler::fail_run(TextRun& run, const Status& status) {
  if (run.is_ended()) return;
  const bool was_in_prompt = run.is_in_prompt();
  run.fail(status);
  if (was_in_prompt) end_others(run, TextEnd::kError, status);
}

// The other choices of a prompt that did not come to its end.
void TextScheduler::end_others(const TextRun& run, TextEnd end, const Status& status) {
  if (!run.place().has_others) return;
  TextPlace others = run.place();
  others.choice = 1;
  end_waiting(others, end, status);
}

TextQueue::Iterator TextScheduler::end_in_queue(TextQueue::Iterator place, TextEnd end,
                                                const Status& status) {
  const TextPlace ended = *place;
  const TextQueue::Iterator next = queue_.remove(place);
  end_waiting(ended, end, status);
  return next;
}

// False when all has ended.
bool TextScheduler::wait_for_work() {
  std::unique_lock lock(mutex_);
  if (runs_.empty() && queue_.waiting() == 0) {
    // No slot is busy then: tasks that had to wait for one are done at once.
    wake_.wait(lock, [this] { return has_news_ || deadline_.has_value() || tasks_.has_any(); });
  }
  has_news_ = false;
  return !deadline_.has_value() || !runs_.empty() || queue_.waiting() > 0;
}

void TextScheduler::end_waiting(const TextPlace& place, TextEnd end, const Status& status) {
  TextTimes times;
  times.prompt_tokens = place.job().prompt.size();
  const std::size_t last = place.has_others ? place.group->listeners.size() : place.choice + 1;
  for (std::size_t i = place.choice; i < last; ++i) {
    (void)caught([&] { place.group->listeners[i]->on_end(end, status, times); });
  }
}

void TextScheduler::end_cancelled() {
  bool all = false;
  bool all_waiting = false;
  {
    const std::lock_guard lock(mutex_);
    all_waiting = deadline_.has_value();
    all = deadline_.has_value() && Clock::now() >= *deadline_;
  }
  for (auto place = queue_.begin(); place != queue_.end();) {
    if (!all_waiting && !place->group->is_cancelled) {
      ++place;
      continue;
    }
    place = end_in_queue(place, TextEnd::kCancelled, Status::ok());
  }
  for (const std::unique_ptr<TextRun>& run : runs_) {
    if (!all && !run->is_cancelled()) continue;
    const bool was_in_prompt = run->is_in_prompt();
    run->end(TextEnd::kCancelled, Status::ok());
    if (was_in_prompt) end_others(*run, TextEnd::kCancelled, Status::ok());
  }
  drop_ended();
}

void TextScheduler::tell_queue() {
  std::size_t before = 0;
  for (auto place = queue_.begin(); place != queue_.end();) {
    TextGroup& group = *place->group;
    Status status;
    if (group.told_before != before && place->choice == 0) {
      group.told_before = before;
      status = caught([&] { place->listener().on_queued(before); });
    }
    if (!status.is_ok()) {
      place = end_in_queue(place, TextEnd::kError, status);
      continue;
    }
    ++place;
    ++before;
  }
}

bool TextScheduler::may_start(const TextPlace& place) const {
  if (has_room()) return true;
  const TextJob& job = place.job();
  return extra_count() == 0 && slots_.size() > options_.parallel && job.has_limit &&
         job.max_tokens <= options_.short_tokens;
}

std::size_t TextScheduler::extra_count() const {
  return static_cast<std::size_t>(
      std::count_if(runs_.begin(), runs_.end(), [](const auto& run) { return run->is_extra(); }));
}

// A short text that runs besides takes no place of another.
bool TextScheduler::has_room() const { return runs_.size() - extra_count() < options_.parallel; }

void TextScheduler::admit_waiting() {
  for (auto place = queue_.begin(); place != queue_.end() && slots_.has_free();) {
    if (!may_start(*place)) {
      ++place;
      continue;
    }
    const TextPlace starting = *place;
    const bool is_extra = !has_room();
    TextSeat seat;
    place = is_extra ? queue_.remove(place) : queue_.seat(place, seat);
    start(starting, is_extra, std::move(seat));
  }
}

void TextScheduler::start(const TextPlace& place, bool is_extra, TextSeat seat) {
  const std::size_t runs = runs_.size();
  const Status status = caught([&] { try_start(place, is_extra, seat); });
  if (status.is_ok()) return;
  if (runs_.size() > runs) return fail_run(*runs_.back(), status);
  refuse(place, seat, status);
}

void TextScheduler::refuse(const TextPlace& place, TextSeat& seat, const Status& status) {
  seat.give_back();
  end_waiting(place, TextEnd::kError, status);
}

void TextScheduler::try_start(const TextPlace& place, bool is_extra, TextSeat& seat) {
  const TextJob& job = place.job();
  if (job.prompt.empty()) return refuse(place, seat, invalid_argument("the prompt is empty"));
  Result<TextSampler> sampler = TextSampler::create(job, place.choice, vocab_limit_);
  if (!sampler.is_ok()) return refuse(place, seat, sampler.status());
  // The first choice computes the prompt; the others may share what it has computed.
  const bool reuses = (job.reuses_states && !job.prompt_logprobs) || place.choice != 0;
  Result<KeptSlots::Ready> ready = slots_.prepare(job.prompt, reuses);
  if (!ready.is_ok()) return refuse(place, seat, ready.status());
  const UsablePrefix& prefix = ready.value().prefix;
  KeptText& target = *ready.value().kept;
  runs_.push_back(
      std::make_unique<TextRun>(place, target, std::move(sampler).value(), rules_, prefix));
  if (is_extra) runs_.back()->set_extra();
  runs_.back()->set_seat(std::move(seat));
  slots_.occupy(target);
  if (prefix.states != nullptr) ++stats_.snapshot_restores;
  stats_.cached_tokens += prefix.tokens;
  if (place.choice != 0) return;  // told with the first one
  for (const std::shared_ptr<TextListener>& listener : place.group->listeners) {
    listener->on_started(job.prompt.size(), prefix.tokens);
  }
}

// Prompts take turns: the one whose turn it is, then those that may be computed beside it. One that
// has other choices is by itself: they are drawn from its logits.
std::vector<TextRun*> TextScheduler::next_prompts() {
  std::vector<TextRun*> prompts;
  const std::size_t before = last_prompt_;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const std::size_t at = (before + 1 + i) % runs_.size();
    TextRun& run = *runs_[at];
    if (!run.is_in_prompt() || (!prompts.empty() && run.place().has_others)) continue;
    if (prompts.empty()) last_prompt_ = at;
    prompts.push_back(&run);
    if (run.place().has_others) break;
  }
  return prompts;
}

std::vector<TextRun*> TextScheduler::decoding_runs() {
  std::vector<TextRun*> runs;
  for (const std::unique_ptr<TextRun>& run : runs_) {
    if (!run->is_in_prompt()) runs.push_back(run.get());
  }
  return runs;
}

void TextScheduler::leave_whose_turn_it_is(std::vector<TextRun*>& decoding) {
  std::vector<std::uint32_t> ids;
  for (TextRun* run : decoding) {
    ids.push_back(static_cast<std::uint32_t>(slots_.index_of(run->kept())));
  }
  const std::optional<std::size_t> one = turns_.next(ids);
  if (one.has_value()) decoding = {decoding[*one]};
}

void TextScheduler::step() {
  std::vector<TextRun*> decoding = decoding_runs();
  const std::vector<TextRun*> prompts = next_prompts();
  if (decoding.empty() && prompts.empty()) return;
  if (prompts.empty()) {
    leave_whose_turn_it_is(decoding);
  } else {
    turns_.interrupt();
  }
  const TextRun::AlsoDraw also = prompts.empty() ? nullptr : others_.draw_for(*prompts.front());
  const std::uint64_t reads = reads_of(engine_.expert_stats());
  const Clock::time_point start = Clock::now();
  const std::vector<Status> statuses = steps_.compute(decoding, prompts, also, stats_);
  if (prompts.empty()) {
    turns_.note(seconds_since(start), reads_of(engine_.expert_stats()) - reads);
  }
  for (std::size_t i = 0; i < statuses.size(); ++i) after_prompt(*prompts[i], statuses[i]);
  slots_.keep_within_budget();
}

void TextScheduler::after_prompt(TextRun& run, Status status) {
  // Before the run takes its first token, whose copies the other choices begin with.
  const bool is_over = run.is_last_slice();
  const Status thrown = caught([&] { run.after_prompt(status); });
  if (!thrown.is_ok()) {
    run.fail(thrown);
    status = thrown;
  }
  if (!run.place().has_others) return;
  if (!status.is_ok()) {
    end_others(run, TextEnd::kError, status);
  } else if (is_over) {
    start_others(run);
  }
}

// Those that find no place wait before all others, and find the prompt's state in this slot.
void TextScheduler::start_others(TextRun& run) {
  const std::size_t choices = run.place().group->listeners.size();
  std::vector<OtherChoice> drawn = others_.take();
  std::size_t first_waiting = choices;
  for (std::size_t choice = 1; choice < choices; ++choice) {
    const TextPlace place{.group = run.place().group, .choice = static_cast<std::uint32_t>(choice)};
    if (drawn.empty()) {  // nothing is drawn behind the prompt
      (void)caught([&] { place.listener().on_end(TextEnd::kLength, Status::ok(), run.times()); });
    } else if (first_waiting == choices &&
               !start_choice(run, place, std::move(drawn[choice - 1]))) {
      first_waiting = choice;
    }
  }
  for (std::size_t choice = choices; choice > first_waiting; --choice) {
    queue_.push_front(
        {.group = run.place().group, .choice = static_cast<std::uint32_t>(choice - 1)});
  }
}

// False when there is no place for it now.
bool TextScheduler::start_choice(const TextRun& prompt_of, const TextPlace& place,
                                 OtherChoice&& other) {
  if (!has_room()) return false;
  KeptText* const target = slots_.copy_of(prompt_of.kept());
  if (target == nullptr) return false;
  runs_.push_back(std::make_unique<TextRun>(place, *target, std::move(other.sampler), rules_,
                                            prompt_of, std::move(other.first)));
  slots_.occupy_by_choice(*target);
  TextRun& run = *runs_.back();
  run.set_seat(queue_.seat());
  const Status thrown = caught([&run] { run.begin_choice(); });
  if (!thrown.is_ok()) run.fail(thrown);
  return true;
}

bool TextScheduler::drop_ended() {
  const std::size_t ended = std::erase_if(runs_, [this](const std::unique_ptr<TextRun>& run) {
    if (!run->is_ended()) return false;
    ended_tokens_ += run->decoded();
    slots_.release(run->kept());
    return true;
  });
  return ended > 0;
}

void TextScheduler::publish() {
  const std::span<const KeptText> kept = std::as_const(slots_).all();
  const SnapshotTotals totals = snapshot_totals(kept);
  stats_.running = runs_.size();
  stats_.answer_tokens = ended_tokens_;
  for (const auto& run : runs_) stats_.answer_tokens += run->decoded();
  stats_.snapshots = totals.count;
  stats_.snapshot_bytes = totals.bytes;
  stats_.kv_tokens = 0;
  stats_.kv_capacity = kept.size() * engine_.context();
  stats_.experts = engine_.expert_stats();
  std::vector<SlotView> views(kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    stats_.kv_tokens += kept[i].tokens.size();
    views[i].kept_tokens = kept[i].tokens.size();
  }
  for (const auto& run : runs_) views[slots_.index_of(run->kept())] = run->facts();
  for (std::size_t i = 0; i < views.size(); ++i) views[i].id = static_cast<std::uint32_t>(i);
  const std::lock_guard lock(mutex_);
  published_ = stats_;
  published_slots_ = std::move(views);
}

}  // namespace moepack
