// The scheduler's thread and what it decides between two forwards.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "formats/base/elapsed.h"
#include "runtime/schedule/decode_turns.h"
#include "runtime/schedule/kept_slots.h"
#include "runtime/schedule/other_choices.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/schedule/slot_tasks.h"
#include "runtime/schedule/text_queue.h"
#include "runtime/schedule/text_run.h"
#include "runtime/schedule/text_steps.h"

namespace moepack {

class TextScheduler final : public Scheduler {
 public:
  TextScheduler(Engine& engine, const SchedulerOptions& options);
  ~TextScheduler() override;

  std::unique_ptr<TextTicket> submit(TextJob job,
                                     std::vector<std::shared_ptr<TextListener>> listeners) override;
  bool is_ending() const override;
  void finish(double grace_seconds) override;
  SchedulerStats stats() const override;
  std::vector<SlotView> slots() const override;
  Result<std::uint64_t> save_slot(std::uint32_t slot, const std::string& name) override;
  Result<std::uint64_t> restore_slot(std::uint32_t slot, const std::string& name) override;
  Result<std::uint64_t> erase_slot(std::uint32_t slot) override;
  Status run_between(const std::function<Status(Engine&)>& work) override;

  // For tickets: something was cancelled.
  void wake();

  // What tickets wake it through: they may outlive it.
  struct Door {
    std::mutex mutex;
    TextScheduler* scheduler = nullptr;  // null: it is gone
  };

 private:
  // Any thread.
  Result<std::uint64_t> run_task(std::size_t slot, SlotTasks::Work work);
  Result<std::filesystem::path> slot_path(const std::string& name) const;

  // The scheduler's thread.
  void run();
  void do_round();
  void fail_all(const Status& status);
  void fail_run(TextRun& run, const Status& status);
  void end_others(const TextRun& run, TextEnd end, const Status& status);
  TextQueue::Iterator end_in_queue(TextQueue::Iterator place, TextEnd end, const Status& status);
  bool wait_for_work();
  void end_cancelled();
  void end_waiting(const TextPlace& place, TextEnd end, const Status& status);
  void tell_queue();
  void admit_waiting();
  bool may_start(const TextPlace& place) const;
  std::size_t extra_count() const;
  bool has_room() const;
  void start(const TextPlace& place, bool is_extra, TextSeat seat);
  void try_start(const TextPlace& place, bool is_extra, TextSeat& seat);
  void refuse(const TextPlace& place, TextSeat& seat, const Status& status);
  void step();
  std::vector<TextRun*> next_prompts();
  std::vector<TextRun*> decoding_runs();
  void leave_whose_turn_it_is(std::vector<TextRun*>& decoding);
  void after_prompt(TextRun& run, Status status);
  void start_others(TextRun& run);
  bool start_choice(const TextRun& prompt_of, const TextPlace& place, OtherChoice&& other);
  bool drop_ended();  // whether there were any
  void publish();

  Engine& engine_;
  SchedulerOptions options_;
  SliceRules rules_;
  TextQueue queue_;
  SlotTasks tasks_;

  // Of all threads, under mutex_.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool has_news_ = false;
  std::optional<Clock::time_point> deadline_;
  SchedulerStats published_;
  std::vector<SlotView> published_slots_;

  // Of the scheduler's thread.
  KeptSlots slots_;
  TextSteps steps_;
  DecodeTurns turns_;
  const std::size_t vocab_limit_;  // SchedulerOptions::vocab_limit, at most what the model has
  OtherChoices others_;            // of the prompt whose last token has been computed
  std::vector<std::unique_ptr<TextRun>> runs_;
  std::size_t last_prompt_ = 0;  // whose slice was the last: prompts take turns
  SchedulerStats stats_;
  std::uint64_t ended_tokens_ = 0;  // of texts that have ended

  std::mutex joining_;
  std::thread thread_;
  std::shared_ptr<Door> door_ = std::make_shared<Door>();
};

}  // namespace moepack
