#include "runtime/schedule/text_scheduler.h"

#include <algorithm>
#include <future>
#include <utility>

#include "runtime/schedule/caught.h"
#include "runtime/schedule/slot_file.h"

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

}  // namespace

struct TextScheduler::Task {
  std::size_t slot = 0;
  SlotTask work;
  std::promise<Result<std::uint64_t>> done;
};

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
      kept_(engine.options().sequences) {
  if (options_.vocab_limit == 0) options_.vocab_limit = engine.config().vocab_size;
  options_.vocab_limit = std::min<std::size_t>(options_.vocab_limit, engine.config().vocab_size);
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
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t running = std::min<std::uint64_t>(published_.running, options_.parallel);
    const std::uint64_t room = options_.queue_limit + options_.parallel - running;
    if (is_ending_ || waiting_count_ >= room) return nullptr;
    ++waiting_count_;
    submitted_.push_back({.group = group, .choice = 0, .has_others = group->listeners.size() > 1});
    has_news_ = true;
  }
  wake_.notify_one();
  return std::make_unique<GroupTicket>(std::move(group), door_);
}

bool TextScheduler::is_ending() const {
  const std::lock_guard lock(mutex_);
  return is_ending_;
}

void TextScheduler::finish(double grace_seconds) {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
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
  stats.waiting = waiting_count_;
  return stats;
}

std::vector<SlotView> TextScheduler::slots() const {
  const std::lock_guard lock(mutex_);
  return published_slots_;
}

Result<std::uint64_t> TextScheduler::run_task(std::size_t slot, SlotTask work) {
  if (slot >= engine_.options().sequences) {
    return invalid_argument("there is no slot " + std::to_string(slot),
                            "give one below " + std::to_string(engine_.options().sequences));
  }
  auto task = std::make_unique<Task>();
  task->slot = slot;
  task->work = std::move(work);
  std::future<Result<std::uint64_t>> done = task->done.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return invalid_argument("the scheduler ends", "start the server again");
    tasks_.push_back(std::move(task));
    has_news_ = true;
  }
  wake_.notify_one();
  return done.get();
}

Result<std::filesystem::path> TextScheduler::slot_path(const std::string& name) const {
  if (options_.save_path.empty()) {
    return unsupported(Where{}, "slots are not saved here", "start with --slot-save-path");
  }
  if (is_slot_name(name)) return options_.save_path / name;
  return invalid_argument("\"" + printable(name) + "\" is no plain name of a file",
                          "use letters, digits, '.', '_' and '-'");
}

Result<std::uint64_t> TextScheduler::save_slot(std::uint32_t slot, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const std::filesystem::path path, slot_path(name));
  return run_task(slot, [this, path](KeptText& kept) -> Result<std::uint64_t> {
    if (kept.tokens.empty()) return invalid_argument("the slot has no text to save");
    MOE_RETURN_IF_ERROR(write_slot_file(path, engine_, kept));
    return std::uint64_t{kept.tokens.size()};
  });
}

Result<std::uint64_t> TextScheduler::restore_slot(std::uint32_t slot, const std::string& name) {
  MOE_ASSIGN_OR_RETURN(const std::filesystem::path path, slot_path(name));
  return run_task(slot, [this, path](KeptText& kept) -> Result<std::uint64_t> {
    if (!kept.sequence.has_value()) {
      MOE_ASSIGN_OR_RETURN(Sequence sequence, engine_.make_sequence());
      kept.sequence.emplace(std::move(sequence));
    }
    MOE_RETURN_IF_ERROR(read_slot_file(path, engine_, kept));
    kept.last_used = texts_started_;
    keep_within(kept_, options_.snapshot_bytes, texts_started_);
    return std::uint64_t{kept.tokens.size()};
  });
}

Status TextScheduler::erase_slot(std::uint32_t slot) {
  return run_task(slot,
                  [](KeptText& kept) -> Result<std::uint64_t> {
                    kept.clear();
                    return std::uint64_t{0};
                  })
      .status();
}

// ---- The scheduler's thread ----

void TextScheduler::run() {
  while (wait_for_work()) {
    const Status status = caught([this] { do_round(); });
    if (!status.is_ok()) fail_all(status);
  }
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  for (const std::unique_ptr<Task>& task : tasks_) {
    task->done.set_value(invalid_argument("the scheduler ends", "start the server again"));
  }
  tasks_.clear();
}

void TextScheduler::do_round() {
  take_submitted();
  end_cancelled();
  do_tasks();
  admit_waiting();
  tell_queue();
  step();
  drop_ended();
  publish();
}

// What no text answers for (no memory for the round itself): nothing is known of any of them.
void TextScheduler::fail_all(const Status& status) {
  others_.clear();
  for (const std::unique_ptr<TextRun>& run : runs_) fail_run(*run, status);
  drop_ended();
  while (!queue_.empty()) fail_waiting(queue_.begin(), status);
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

std::deque<TextPlace>::iterator TextScheduler::fail_waiting(std::deque<TextPlace>::iterator place,
                                                            const Status& status) {
  end_waiting(*place, TextEnd::kError, status);
  const std::lock_guard lock(mutex_);
  --waiting_count_;
  return queue_.erase(place);
}

// False when all has ended.
bool TextScheduler::wait_for_work() {
  std::unique_lock lock(mutex_);
  if (runs_.empty() && queue_.empty()) {
    // No slot is busy then: tasks that had to wait for one are done at once.
    wake_.wait(lock, [this] { return has_news_ || is_ending_ || !tasks_.empty(); });
  }
  has_news_ = false;
  return !is_ending_ || !runs_.empty() || !submitted_.empty() || !queue_.empty();
}

void TextScheduler::take_submitted() {
  const std::lock_guard lock(mutex_);
  while (!submitted_.empty()) {
    queue_.push_back(std::move(submitted_.front()));
    submitted_.pop_front();
  }
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
    all_waiting = is_ending_;
    all = is_ending_ && Clock::now() >= *deadline_;
  }
  for (auto place = queue_.begin(); place != queue_.end();) {
    if (!all_waiting && !place->group->is_cancelled) {
      ++place;
      continue;
    }
    end_waiting(*place, TextEnd::kCancelled, Status::ok());
    place = queue_.erase(place);
    const std::lock_guard lock(mutex_);
    --waiting_count_;
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
      place = fail_waiting(place, status);
      continue;
    }
    ++place;
    ++before;
  }
}

void TextScheduler::do_tasks() {
  std::deque<std::unique_ptr<Task>> ready;
  {
    const std::lock_guard lock(mutex_);
    for (auto task = tasks_.begin(); task != tasks_.end();) {
      if (kept_[(*task)->slot].is_busy) {
        ++task;
        continue;
      }
      ready.push_back(std::move(*task));
      task = tasks_.erase(task);
    }
  }
  for (const std::unique_ptr<Task>& task : ready) {
    KeptText& kept = kept_[task->slot];
    Result<std::uint64_t> done = std::uint64_t{0};
    const Status status = caught([&] { done = task->work(kept); });
    if (!status.is_ok()) {
      done = status;
      kept.clear();  // it may be half-changed
    }
    publish();
    task->done.set_value(std::move(done));
  }
}

bool TextScheduler::may_start(const TextPlace& place) const {
  if (has_room()) return true;
  const TextJob& job = place.job();
  return extra_count() == 0 && kept_.size() > options_.parallel && job.has_limit &&
         job.max_tokens <= options_.short_tokens;
}

std::size_t TextScheduler::extra_count() const {
  return static_cast<std::size_t>(
      std::count_if(runs_.begin(), runs_.end(), [](const auto& run) { return run->is_extra(); }));
}

// A short text that runs besides takes no place of another.
bool TextScheduler::has_room() const { return runs_.size() - extra_count() < options_.parallel; }

void TextScheduler::admit_waiting() {
  for (auto place = queue_.begin(); place != queue_.end();) {
    if (!may_start(*place)) {
      ++place;
      continue;
    }
    const TextPlace starting = *place;
    if (!start(starting)) return;
    place = queue_.erase(place);
    const std::lock_guard lock(mutex_);
    --waiting_count_;
  }
}

// False when no slot is free.
bool TextScheduler::start(const TextPlace& place) {
  const std::size_t runs = runs_.size();
  bool has_slot = true;
  const Status status = caught([&] { has_slot = try_start(place); });
  if (status.is_ok()) return has_slot;
  if (runs_.size() > runs) {
    fail_run(*runs_.back(), status);
  } else {
    end_waiting(place, TextEnd::kError, status);
  }
  return true;
}

bool TextScheduler::try_start(const TextPlace& place) {
  const TextJob& job = place.job();
  const bool is_extra = !has_room();
  // The prompt's probabilities are those of the first choice.
  const bool reuses = !job.prompt_logprobs || place.choice != 0;
  std::optional<SlotChoice> choice =
      choose_slot(kept_, job.prompt, rules_.cut_tokens, texts_started_, reuses);
  if (!choice.has_value()) return false;
  KeptText& target = kept_[choice->target];
  const auto prepare = [&]() -> Status {
    if (choice->source != choice->target) {
      const Status copied = copy_prefix(kept_[choice->source], choice->prefix, target);
      if (copied.is_ok()) return copied;
      choice->prefix = {};
    } else if (target.sequence.has_value() && !go_back(target, choice->prefix).is_ok()) {
      choice->prefix = {};
    }
    if (target.sequence.has_value()) return Status::ok();
    MOE_ASSIGN_OR_RETURN(Sequence sequence, engine_.make_sequence());
    target.sequence.emplace(std::move(sequence));
    return Status::ok();
  };
  Status status;
  const Status thrown = caught([&] { status = prepare(); });
  if (!thrown.is_ok()) {
    target.sequence.reset();
    target.clear();
    status = thrown;
  }
  if (status.is_ok() && job.prompt.empty()) status = invalid_argument("the prompt is empty");
  Result<TextSampler> sampler = TextSampler::create(job, place.choice, options_.vocab_limit);
  if (status.is_ok()) status = sampler.status();
  if (!status.is_ok()) {
    end_waiting(place, TextEnd::kError, status);
    return true;
  }
  runs_.push_back(
      std::make_unique<TextRun>(place, target, std::move(sampler).value(), rules_, choice->prefix));
  runs_.back()->set_extra(is_extra);
  target.is_busy = true;
  target.last_used = ++texts_started_;
  if (choice->prefix.states != nullptr) ++stats_.snapshot_restores;
  stats_.cached_tokens += choice->prefix.tokens;
  if (place.choice != 0) return true;  // told with the first one
  for (const std::shared_ptr<TextListener>& listener : place.group->listeners) {
    listener->on_started(job.prompt.size(), choice->prefix.tokens);
  }
  return true;
}

// Prompts take turns.
TextRun* TextScheduler::next_prompt() {
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const std::size_t at = (last_prompt_ + 1 + i) % runs_.size();
    if (!runs_[at]->is_in_prompt()) continue;
    last_prompt_ = at;
    return runs_[at].get();
  }
  return nullptr;
}

std::vector<TextRun*> TextScheduler::decoding_runs() {
  std::vector<TextRun*> runs;
  for (const std::unique_ptr<TextRun>& run : runs_) {
    if (!run->is_in_prompt()) runs.push_back(run.get());
  }
  return runs;
}

void TextScheduler::step() {
  const std::vector<TextRun*> decoding = decoding_runs();
  TextRun* const prompt = next_prompt();
  if (decoding.empty() && prompt == nullptr) return;
  if (rules_.may_mix()) {
    forward_mixed(decoding, prompt);
  } else {
    forward_apart(decoding, prompt);
  }
  keep_within(kept_, options_.snapshot_bytes, texts_started_);
}

std::vector<Status> TextScheduler::forward(std::vector<Slice> slices, bool has_prompt,
                                           std::uint64_t tokens) {
  const Clock::time_point start = Clock::now();
  std::vector<Status> statuses;
  const Status thrown = caught([&] { statuses = engine_.forward(slices); });
  if (!thrown.is_ok()) statuses.assign(slices.size(), thrown);
  (has_prompt ? stats_.prompt_seconds : stats_.decode_seconds) += seconds_since(start);
  const std::size_t decoding = slices.size() - (has_prompt ? 1 : 0);
  stats_.prompt_tokens += tokens;
  stats_.decode_tokens += decoding;
  if (decoding > 0) ++stats_.decode_steps;
  return statuses;
}

// All in one forward: an expert is read once for all of them.
void TextScheduler::forward_mixed(std::span<TextRun* const> decoding, TextRun* prompt) {
  std::vector<Slice> slices;
  for (TextRun* run : decoding) slices.push_back(run->decode_slice());
  if (prompt != nullptr) {
    slices.push_back(prompt->prompt_slice(decoding.size(), also_draw(*prompt)));
  }
  const std::vector<Status> statuses =
      forward(std::move(slices), prompt != nullptr, prompt == nullptr ? 0 : prompt->computed());
  for (std::size_t i = 0; i < decoding.size(); ++i) after_decode(*decoding[i], statuses[i]);
  if (prompt != nullptr) after_prompt(*prompt, statuses.back());
}

// As many rows at once as have the bits of one, and the prompt by itself.
void TextScheduler::forward_apart(std::span<TextRun* const> decoding, TextRun* prompt) {
  for (std::size_t first = 0; first < decoding.size(); first += rules_.decode_rows) {
    const auto group =
        decoding.subspan(first, std::min<std::size_t>(rules_.decode_rows, decoding.size() - first));
    std::vector<Slice> slices;
    for (TextRun* run : group) slices.push_back(run->decode_slice());
    const std::vector<Status> statuses = forward(std::move(slices), false, 0);
    for (std::size_t i = 0; i < group.size(); ++i) after_decode(*group[i], statuses[i]);
  }
  if (prompt == nullptr) return;
  std::vector<Slice> slices;
  slices.push_back(prompt->prompt_slice(0, also_draw(*prompt)));
  const std::vector<Status> statuses = forward(std::move(slices), true, prompt->computed());
  after_prompt(*prompt, statuses.front());
}

// Draws the first token of the other choices from the logits of the prompt's last token.
TextRun::AlsoDraw TextScheduler::also_draw(const TextRun& run) {
  others_.clear();
  if (!run.place().has_others) return {};
  return [this, &run, group = run.place().group](std::span<const float> logits) -> Status {
    for (std::uint32_t choice = 1; choice < group->listeners.size(); ++choice) {
      MOE_ASSIGN_OR_RETURN(TextSampler sampler,
                           TextSampler::create(group->job, choice, options_.vocab_limit));
      MOE_ASSIGN_OR_RETURN(TokenStep first, sampler.draw(logits, run.remaining()));
      others_.push_back({std::move(sampler), std::move(first)});
    }
    return Status::ok();
  };
}

void TextScheduler::after_decode(TextRun& run, const Status& status) {
  const Status thrown = caught([&] { run.after_decode(status); });
  if (!thrown.is_ok()) run.fail(thrown);
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
  std::size_t first_waiting = choices;
  for (std::size_t choice = 1; choice < choices; ++choice) {
    const TextPlace place{.group = run.place().group, .choice = static_cast<std::uint32_t>(choice)};
    if (others_.empty()) {  // nothing is drawn behind the prompt
      (void)caught([&] { place.listener().on_end(TextEnd::kLength, Status::ok(), run.times()); });
    } else if (first_waiting == choices &&
               !start_choice(run, place, std::move(others_[choice - 1]))) {
      first_waiting = choice;
    }
  }
  for (std::size_t choice = choices; choice > first_waiting; --choice) {
    queue_.push_front(
        {.group = run.place().group, .choice = static_cast<std::uint32_t>(choice - 1)});
    const std::lock_guard lock(mutex_);
    ++waiting_count_;
  }
  others_.clear();
}

// False when there is no place for it now.
bool TextScheduler::start_choice(const TextRun& prompt_of, const TextPlace& place,
                                 OtherChoice&& other) {
  if (!has_room()) return false;
  const std::optional<SlotChoice> choice =
      choose_slot(kept_, {}, rules_.cut_tokens, texts_started_, false);
  if (!choice.has_value()) return false;
  KeptText& target = kept_[choice->target];
  const UsablePrefix all{.common = prompt_of.kept().tokens.size(),
                         .tokens = prompt_of.kept().tokens.size(),
                         .states = nullptr};
  bool is_copied = false;
  Status thrown = caught([&] {
    is_copied = copy_prefix(prompt_of.kept(), all, target).is_ok();
    if (!is_copied) return;
    runs_.push_back(std::make_unique<TextRun>(place, target, std::move(other.sampler), rules_,
                                              prompt_of, std::move(other.first)));
  });
  if (!thrown.is_ok()) {
    target.sequence.reset();
    target.clear();
    end_waiting(place, TextEnd::kError, thrown);
    return true;
  }
  if (!is_copied) return false;
  target.is_busy = true;
  target.last_used = texts_started_;
  TextRun& run = *runs_.back();
  thrown = caught([&run] { run.begin_choice(); });
  if (!thrown.is_ok()) run.fail(thrown);
  return true;
}

void TextScheduler::drop_ended() {
  std::erase_if(runs_, [this](const std::unique_ptr<TextRun>& run) {
    if (!run->is_ended()) return false;
    run->kept().is_busy = false;
    run->kept().last_used = texts_started_;
    return true;
  });
}

void TextScheduler::publish() {
  stats_.running = runs_.size();
  const SnapshotTotals totals = snapshot_totals(kept_);
  stats_.snapshots = totals.count;
  stats_.snapshot_bytes = totals.bytes;
  stats_.kv_tokens = 0;
  for (const KeptText& kept : kept_) stats_.kv_tokens += kept.tokens.size();
  stats_.kv_capacity = kept_.size() * engine_.context();
  stats_.experts = engine_.expert_stats();
  std::vector<SlotView> slots(kept_.size());
  for (std::size_t i = 0; i < kept_.size(); ++i) slots[i].kept_tokens = kept_[i].tokens.size();
  for (const std::unique_ptr<TextRun>& run : runs_) {
    slots[static_cast<std::size_t>(&run->kept() - kept_.data())] = run->facts();
  }
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i].id = static_cast<std::uint32_t>(i);
  const std::lock_guard lock(mutex_);
  published_ = stats_;
  published_slots_ = std::move(slots);
}

}  // namespace moepack
