// Many texts at once: each gets what it gets alone, goes on from states kept before, and leaves no
// trace in the others.
#include "runtime/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/schedule/text_collector.h"
#include "tests/support/attention_model.h"
#include "tests/support/converted_model.h"
#include "tests/support/test_models.h"

namespace moepack::scheduler_test {
namespace {

using test::greedy_job;
using test::prompt_of;
using test::TextCollector;
using Ids = std::vector<std::int32_t>;

Ids joined(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// How a model is computed: with results that depend on the batch, and that do not.
enum class Way { kReference, kBytes, kQuantizedFloats };

class SchedulerTest : public ::testing::Test {
 protected:
  void open(Way way, std::uint32_t sequences, bool has_recurrent = true) {
    const test::TempDir& dir = dirs_[has_recurrent ? 0 : 1];
    const std::filesystem::path model = dir / "model";
    if (!std::filesystem::exists(model)) {
      std::filesystem::path checkpoint = test::demo_mlx_model();
      if (!has_recurrent) {
        checkpoint = dir / "checkpoint";
        test::write_attention_model(checkpoint);
      }
      ASSERT_FALSE(test::convert_for_test(checkpoint, dir).empty());
    }
    scheduler_.reset();
    engine_.reset();
    options_ = test::fast_options(model);
    if (way == Way::kReference) options_.backend = Backend::kReference;
    if (way == Way::kBytes) options_.activations = ActivationType::kInt8;
    options_.chunk_tokens = 64;
    options_.context = 2048;
    options_.sequences = sequences;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options_));
  }
  void start(SchedulerOptions options) {
    ASSERT_OK_AND_ASSIGN(scheduler_, Scheduler::start(*engine_, options));
  }

  // By itself, with nothing but the engine; how probable each token was goes to `chances`.
  Ids alone(const TextJob& job, std::vector<float>* chances = nullptr) {
    Ids tokens;
    auto made = engine_->make_sequence();
    EXPECT_TRUE(made.is_ok()) << made.status().message();
    if (!made.is_ok()) return {};
    Sequence sequence = std::move(made).value();
    auto sampler = Sampler::create(job.sampling, engine_->config().vocab_size);
    std::int32_t next = 0;
    const LogitsSink draw = [&](std::size_t, std::span<const float> logits) -> Status {
      MOE_ASSIGN_OR_RETURN(next, sampler.value().sample(logits));
      if (chances == nullptr) return Status::ok();
      MOE_ASSIGN_OR_RETURN(const TokenStep step, token_chances(logits, next, 0));
      chances->push_back(step.token.logprob);
      return Status::ok();
    };
    Slice slice{&sequence, job.prompt, job.prompt.size() - 1, draw};
    EXPECT_OK(engine_->forward(std::span(&slice, 1)).front());
    tokens.push_back(next);
    while (tokens.size() < job.max_tokens) {
      const std::int32_t token = next;
      slice = {&sequence, std::span(&token, 1), 0, draw};
      EXPECT_OK(engine_->forward(std::span(&slice, 1)).front());
      tokens.push_back(next);
    }
    return tokens;
  }

  struct Submitted {
    std::vector<std::shared_ptr<TextCollector>> texts;
    std::unique_ptr<TextTicket> ticket;
    TextCollector& text(std::size_t i = 0) const { return *texts[i]; }
  };
  Submitted submit(TextJob job) {
    Submitted submitted;
    std::vector<std::shared_ptr<TextListener>> listeners;
    for (std::uint32_t i = 0; i < job.choices; ++i) {
      submitted.texts.push_back(std::make_shared<TextCollector>());
      listeners.push_back(submitted.texts.back());
    }
    submitted.ticket = scheduler_->submit(std::move(job), std::move(listeners));
    EXPECT_NE(submitted.ticket, nullptr);
    return submitted;
  }
  // To its end.
  std::shared_ptr<TextCollector> run(TextJob job) {
    const Submitted submitted = submit(std::move(job));
    EXPECT_TRUE(submitted.text().wait_end());
    EXPECT_TRUE(submitted.text().status().is_ok()) << submitted.text().status().message();
    return submitted.texts.front();
  }

  std::array<test::TempDir, 2> dirs_;  // with and without recurrent states
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Scheduler> scheduler_;
};

class SchedulerWays : public SchedulerTest, public ::testing::WithParamInterface<Way> {};

// The demo model is quantized to 4 bits: with inputs in floats its last bits depend on batches.
TEST_P(SchedulerWays, EightAtOnceGetWhatEachGetsAlone) {
  ASSERT_NO_FATAL_FAILURE(open(GetParam(), 8));
  EXPECT_EQ(engine_->cut_tokens(), GetParam() == Way::kQuantizedFloats ? 64U : 1U);
  std::vector<TextJob> jobs;
  std::vector<Ids> expected;
  std::vector<std::vector<float>> chances(8);
  for (std::size_t i = 0; i < 8; ++i) {
    jobs.push_back(greedy_job(prompt_of(5 + 37 * i, 977 + 2 * i), 90 - i));
    if (i % 4 != 3) jobs.back().top_logprobs = 0;
    if (i % 3 == 1) {
      jobs.back().sampling.temperature = 0.9F;
      jobs.back().sampling.seed = i;
    }
    expected.push_back(alone(jobs.back(), &chances[i]));
  }
  for (const TurnUse turns : {TurnUse::kNever, TurnUse::kAlways}) {
    ASSERT_NO_FATAL_FAILURE(
        start({.parallel = 8, .slice_tokens = 48, .snapshot_every = 40, .turns = turns}));
    // The second time from kept states.
    for (int round = 0; round < (turns == TurnUse::kNever ? 2 : 1); ++round) {
      std::vector<Submitted> texts;
      for (const TextJob& job : jobs) texts.push_back(submit(job));
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        ASSERT_TRUE(texts[i].text().wait_end());
        EXPECT_EQ(texts[i].text().tokens(), expected[i]) << i << " in round " << round;
        EXPECT_EQ(texts[i].text().end(), TextEnd::kLength);
        EXPECT_EQ(texts[i].text().starts(), 1);
        if (!jobs[i].top_logprobs.has_value()) continue;
        for (std::size_t t = 0; t < expected[i].size(); ++t) {  // to the last bit
          EXPECT_EQ(texts[i].text().steps()[t].token.logprob, chances[i][t]) << i << " token " << t;
        }
      }
    }
    const SchedulerStats stats = scheduler_->stats();
    EXPECT_EQ(stats.cached_tokens > 0, turns == TurnUse::kNever);
    const double at_once =
        static_cast<double>(stats.decode_tokens) / static_cast<double>(stats.decode_steps);
    EXPECT_EQ(at_once > 1.5, turns == TurnUse::kNever) << at_once;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, SchedulerWays,
                         ::testing::Values(Way::kReference, Way::kBytes, Way::kQuantizedFloats));

// Four greedy choices of one prompt choose the same experts: each is read once for all of them.
TEST_F(SchedulerTest, AStepReadsAnExpertOnceForAllTexts) {
  std::vector<std::uint64_t> misses;
  std::vector<std::uint64_t> steps;
  for (const std::uint32_t choices : {1U, 4U}) {
    ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 4));
    EngineOptions small = options_;
    small.cache_bytes = engine_->memory_plan().cache_floor_bytes;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(small));
    ASSERT_NO_FATAL_FAILURE(start({.parallel = 4}));
    TextJob job = greedy_job(prompt_of(20, 977), 50);
    job.choices = choices;
    const Submitted texts = submit(std::move(job));
    for (const auto& text : texts.texts) ASSERT_TRUE(text->wait_end());
    scheduler_->finish(60);
    EXPECT_EQ(texts.texts.back()->tokens(), texts.texts.front()->tokens());
    misses.push_back(scheduler_->stats().experts.misses);
    steps.push_back(scheduler_->stats().decode_steps);
  }
  EXPECT_EQ(misses[0], misses[1]);
  EXPECT_EQ(steps[0], steps[1]);
  EXPECT_GT(misses[0], 100U) << "the cache must be too small for all";
}

TEST_F(SchedulerTest, ChoicesAreThoseOfTheirSeeds) {
  for (const std::uint32_t parallel : {2U, 5U}) {  // with and without places for all
    ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, parallel));
    TextJob job = greedy_job(prompt_of(150, 977), 20);
    job.sampling.temperature = 1.5F;
    job.sampling.top_k = 0;
    job.sampling.min_p = 0;
    job.sampling.seed = 7;
    std::vector<Ids> expected;
    for (std::uint64_t i = 0; i < 5; ++i) {
      TextJob one = job;
      one.sampling.seed = 7 + i;
      expected.push_back(alone(one));
    }
    ASSERT_NE(expected[0], expected[1]);
    ASSERT_NO_FATAL_FAILURE(start({.parallel = parallel}));
    job.choices = 5;
    const Submitted texts = submit(job);
    for (std::size_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(texts.text(i).wait_end());
      EXPECT_EQ(texts.text(i).tokens(), expected[i]) << i;
      EXPECT_EQ(texts.text(i).starts(), 1);
      EXPECT_EQ(texts.text(i).ends(), 1);
    }
    EXPECT_LE(scheduler_->stats().prompt_tokens, 150U + 5) << "the prompt is computed once";
  }
}

// ---- States that are kept ----

// A turn behind a turn: what was sampled stays, and nothing of it is computed again.
TEST_F(SchedulerTest, GoesOnBehindAnAnswer) {
  for (const bool has_recurrent : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3, has_recurrent));
    const TextJob first = greedy_job(prompt_of(100, 977), 30);
    const Ids answer = alone(first);
    const Ids history = joined(first.prompt, answer);
    const TextJob second = greedy_job(joined(history, prompt_of(50, 41)), 20);
    const Ids expected = alone(second);
    ASSERT_NO_FATAL_FAILURE(start({.parallel = 2}));
    EXPECT_EQ(run(first)->tokens(), answer);
    const auto text = run(second);
    EXPECT_EQ(text->tokens(), expected);
    EXPECT_EQ(text->times().cached_tokens, 129U) << "all but the token that was drawn last";
    EXPECT_EQ(scheduler_->stats().prompt_tokens, 100U + 51U);
  }
}

// A turn that drops what was answered goes on from the place that the first one asked for.
TEST_F(SchedulerTest, GoesBackToPlacesAskedFor) {
  for (const bool has_recurrent : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3, has_recurrent));
    TextJob first = greedy_job(prompt_of(100, 977), 30);
    first.snapshots = {30, 90};
    Ids changed(first.prompt.begin(), first.prompt.begin() + 95);
    TextJob second = greedy_job(joined(changed, prompt_of(60, 41)), 20);
    second.snapshots = {30, 140};
    Ids other(first.prompt.begin(), first.prompt.begin() + 70);
    const TextJob third = greedy_job(joined(other, prompt_of(60, 43)), 20);
    const Ids of_second = alone(second);
    const Ids of_third = alone(third);
    ASSERT_NO_FATAL_FAILURE(start({.parallel = 2}));
    run(first);
    auto text = run(second);
    EXPECT_EQ(text->tokens(), of_second);
    EXPECT_EQ(text->times().cached_tokens, has_recurrent ? 90U : 95U);
    text = run(third);
    EXPECT_EQ(text->tokens(), of_third);
    EXPECT_EQ(text->times().cached_tokens, has_recurrent ? 30U : 70U);
    EXPECT_GE(scheduler_->stats().snapshot_restores, 2U);
    EXPECT_EQ(scheduler_->stats().snapshot_bytes > 0, has_recurrent);
  }
}

// Where the bits depend on cuts, places of prompts are multiples of Engine::cut_tokens().
TEST_F(SchedulerTest, ReusesAtCutsAloneWhereBitsDependOnThem) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kQuantizedFloats, 3));
  TextJob first = greedy_job(prompt_of(200, 977), 10);
  first.snapshots = {150};
  TextJob second = first;
  second.prompt.resize(180);
  second.prompt = joined(second.prompt, prompt_of(60, 41));
  const Ids expected = alone(second);
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 2}));
  run(first);
  const auto text = run(second);
  EXPECT_EQ(text->tokens(), expected);
  EXPECT_EQ(text->times().cached_tokens, 128U);
}

TEST_F(SchedulerTest, TheSamePromptAgainCostsAToken) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3));
  const TextJob job = greedy_job(prompt_of(300, 977), 10);
  const Ids expected = alone(job);
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 1}));
  EXPECT_EQ(run(job)->tokens(), expected);
  const auto again = run(job);
  EXPECT_EQ(again->tokens(), expected);
  EXPECT_EQ(again->times().cached_tokens, 299U);
}

TEST_F(SchedulerTest, AWholePromptIsComputedWhereNothingIsToBeReused) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3));
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 2}));
  TextJob job = greedy_job(prompt_of(300, 977), 4);
  const auto first = run(job);
  job.reuses_states = false;
  job.choices = 2;
  const Submitted again = submit(job);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(again.text(i).wait_end());
  EXPECT_EQ(again.text().times().cached_tokens, 0U);
  EXPECT_EQ(again.text().tokens(), first->tokens());
  EXPECT_EQ(scheduler_->stats().cached_tokens, 0U);
  job.reuses_states = true;
  job.choices = 1;
  EXPECT_EQ(run(job)->times().cached_tokens, 299U);
}

TEST_F(SchedulerTest, ACancelledPromptKeepsWhatItHas) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 2));
  const TextJob job = greedy_job(prompt_of(1500, 977), 10);
  const Ids expected = alone(job);
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 1, .slice_tokens = 16}));
  const Submitted first = submit(job);
  ASSERT_TRUE(first.text().wait_prompt(160));
  first.ticket->cancel();
  ASSERT_TRUE(first.text().wait_end());
  EXPECT_EQ(first.text().end(), TextEnd::kCancelled);
  const std::uint64_t done = first.text().prompt_done().back();
  ASSERT_LT(done, 1500U);
  const auto text = run(job);
  EXPECT_EQ(text->times().cached_tokens, done);
  EXPECT_EQ(text->tokens(), expected);
}

// A title is asked for between two turns of a long conversation, which goes on as if nothing had
// been; also where they begin alike, and where only one text runs at a time.
TEST_F(SchedulerTest, AShortRequestLeavesAConversationItsState) {
  for (const std::uint32_t parallel : {1U, 2U}) {
    ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 2));
    TextJob turn = greedy_job(prompt_of(400, 977), 10);
    turn.snapshots = {60, 390};
    ASSERT_NO_FATAL_FAILURE(start({.parallel = parallel}));
    const Ids answer = run(turn)->tokens();
    for (const std::size_t shared : {0U, 70U}) {
      for (const std::size_t factor : {41U, 43U, 47U}) {
        TextJob title = greedy_job(turn.prompt, 5);
        title.prompt.resize(shared);
        title.prompt = joined(title.prompt, prompt_of(30, factor));
        EXPECT_EQ(run(title)->times().cached_tokens, shared == 0 ? 0U : 60U) << factor;
      }
    }
    const auto next = run(greedy_job(joined(joined(turn.prompt, answer), prompt_of(20, 5)), 5));
    EXPECT_EQ(next->times().cached_tokens, 409U) << parallel;
  }
}

// ---- Who runs when ----

TEST_F(SchedulerTest, AShortTextIsNotHeldUpByALongOne) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 2));
  const TextJob quick = greedy_job(prompt_of(10, 41), 5);
  const Ids expected = alone(quick);
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 1, .slice_tokens = 16}));
  const Submitted lengthy = submit(greedy_job(prompt_of(1000, 977), 800));
  const Submitted behind = submit(greedy_job(prompt_of(100, 977), 100));  // long too: it waits
  ASSERT_TRUE(lengthy.text().wait_prompt(16));
  const auto text = run(quick);
  EXPECT_EQ(text->tokens(), expected);
  EXPECT_EQ(lengthy.text().ends(), 0);
  EXPECT_EQ(behind.text().starts(), 0);
  EXPECT_EQ(behind.text().queued(), std::vector<std::size_t>{0});
  lengthy.ticket->cancel();
  ASSERT_TRUE(lengthy.text().wait_end());
  EXPECT_EQ(lengthy.text().end(), TextEnd::kCancelled);
  ASSERT_TRUE(behind.text().wait_end());
  EXPECT_EQ(behind.text().end(), TextEnd::kLength);
}

// Those that wait when a text has had a token are told of their first one before it has another;
// where together they are longer than a slice, after as many steps as slices.
TEST_F(SchedulerTest, ShortPromptsThatComeAtOnceAreComputedTogether) {
  for (const std::uint64_t slice_tokens : {60U, 30U}) {
    ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 5));
    std::vector<TextJob> jobs;
    std::vector<Ids> expected;
    for (std::size_t i = 0; i < 4; ++i) {
      jobs.push_back(greedy_job(prompt_of(15, 977 + 2 * i), 5));
      expected.push_back(alone(jobs.back()));
    }
    ASSERT_NO_FATAL_FAILURE(start({.parallel = 5, .slice_tokens = slice_tokens}));
    const auto first = std::make_shared<TextCollector>();
    std::vector<Submitted> texts;
    std::atomic<int> decoded{0};
    std::vector<int> began(4);
    first->next_of = [&](std::size_t tokens) {
      ++decoded;
      for (std::size_t i = 0; tokens == 1 && i < 4; ++i) {
        const auto text = std::make_shared<TextCollector>();
        text->next_of = [&began, &decoded, i](std::size_t count) {
          if (count == 1) began[i] = decoded;
          return TextListener::Next{};
        };
        texts.push_back({.texts = {text}, .ticket = scheduler_->submit(jobs[i], {text})});
      }
      return TextListener::Next{};
    };
    const auto ticket = scheduler_->submit(greedy_job(prompt_of(10, 5), 40), {first});
    ASSERT_TRUE(first->wait_end());
    for (std::size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(texts[i].text().wait_end());
      EXPECT_EQ(texts[i].text().tokens(), expected[i]) << i;
      EXPECT_EQ(began[i] - began[0], slice_tokens == 60 ? 0 : static_cast<int>(i / 2)) << i;
    }
  }
}

TEST_F(SchedulerTest, TheQueueHasAnOrderAndAnEnd) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 1));
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 1, .queue_limit = 3}));
  std::vector<Submitted> texts;
  texts.push_back(submit(greedy_job(prompt_of(10, 977), 2000)));
  ASSERT_TRUE(texts[0].text().wait_tokens(1));
  for (std::size_t i = 0; i < 3; ++i) {
    texts.push_back(submit(greedy_job(prompt_of(10, 41 + 2 * i), 4)));
  }
  const auto refused = std::make_shared<TextCollector>();
  EXPECT_EQ(scheduler_->submit(greedy_job(prompt_of(10, 5), 4), {refused}), nullptr);
  EXPECT_EQ(scheduler_->stats().waiting, 3U);
  EXPECT_FALSE(scheduler_->is_ending());
  texts[2].ticket->cancel();  // while it waits
  ASSERT_TRUE(texts[2].text().wait_end());
  EXPECT_EQ(texts[2].text().end(), TextEnd::kCancelled);
  EXPECT_EQ(texts[2].text().starts(), 0);
  texts[0].ticket->cancel();
  for (const Submitted& text : texts) ASSERT_TRUE(text.text().wait_end());
  EXPECT_EQ(texts[1].text().end(), TextEnd::kLength);
  EXPECT_EQ(texts[3].text().end(), TextEnd::kLength);
  EXPECT_LT(texts[1].text().ended_at(), texts[3].text().ended_at());
  EXPECT_EQ(texts[3].text().queued().back(), 0U);
  EXPECT_EQ(refused->ends(), 0);
}

// A text that starts makes room behind it at the moment it starts, not before its first step is
// computed and not twice; one that ends makes room before it says so.
TEST_F(SchedulerTest, TheQueuesLimitHoldsAtEveryMoment) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 1));
  for (const std::size_t limit : {0U, 2U}) {
    ASSERT_NO_FATAL_FAILURE(start({.parallel = 1, .queue_limit = limit}));
    std::vector<Submitted> texts;
    texts.push_back(submit(greedy_job(prompt_of(1000, 977), 1000)));
    ASSERT_TRUE(texts[0].text().wait_start());  // the first slice is still being computed
    for (std::size_t i = 0; i < limit; ++i)
      texts.push_back(submit(greedy_job(prompt_of(10, 41), 1)));
    const auto refused = std::make_shared<TextCollector>();
    EXPECT_EQ(scheduler_->submit(greedy_job(prompt_of(10, 5), 4), {refused}), nullptr);
    EXPECT_EQ(scheduler_->stats().waiting, limit);
    texts[0].ticket->cancel();
    for (const Submitted& text : texts) ASSERT_TRUE(text.text().wait_end());
    for (int i = 0; i < 20; ++i) run(greedy_job(prompt_of(5, 41), 2));  // each when one has ended
    scheduler_->finish(0);
    EXPECT_EQ(scheduler_->stats().waiting, 0U);
  }
}

// Sixteen threads ask until they are taken: never more wait than may, and none is lost.
TEST_F(SchedulerTest, ManyAskAtOnce) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3));
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 2, .queue_limit = 3}));
  std::atomic<int> ended{0};
  std::atomic<std::uint64_t> most{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 5; ++i) {
        const auto text = std::make_shared<TextCollector>();
        std::unique_ptr<TextTicket> ticket;
        while (ticket == nullptr) {
          ticket = scheduler_->submit(greedy_job(prompt_of(3 + t, 41 + 2 * i), 1 + i), {text});
          const std::uint64_t waiting = scheduler_->stats().waiting;
          std::uint64_t seen = most;
          while (waiting > seen && !most.compare_exchange_weak(seen, waiting)) {
          }
          if (ticket == nullptr) std::this_thread::yield();
        }
        if (t % 4 == 3) ticket->cancel();
        if (text->wait_end()) ++ended;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 80);
  EXPECT_LE(most, 5U) << "three behind two free seats";
  scheduler_->finish(60);
  EXPECT_EQ(scheduler_->stats().waiting, 0U);
  EXPECT_EQ(scheduler_->stats().running, 0U);
}

TEST_F(SchedulerTest, FinishingWaitsForWhatRuns) {
  for (const bool has_time : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 1));
    ASSERT_NO_FATAL_FAILURE(start({.parallel = 1}));
    const Submitted running = submit(greedy_job(prompt_of(10, 977), has_time ? 50 : 2000));
    const Submitted waiting = submit(greedy_job(prompt_of(10, 41), 5));
    ASSERT_TRUE(running.text().wait_tokens(1));
    scheduler_->finish(has_time ? 60 : 0.01);
    EXPECT_EQ(running.text().end(), has_time ? TextEnd::kLength : TextEnd::kCancelled);
    EXPECT_EQ(waiting.text().end(), TextEnd::kCancelled);
    EXPECT_TRUE(scheduler_->is_ending());
    EXPECT_EQ(scheduler_->submit(greedy_job(prompt_of(10, 5), 4), {running.texts[0]}), nullptr);
    EXPECT_FALSE(scheduler_->erase_slot(0).is_ok());
  }
}

TEST_F(SchedulerTest, AnErrorIsItsOwnTextsAlone) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3));
  const TextJob good = greedy_job(prompt_of(100, 977), 30);
  const Ids expected = alone(good);
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 3}));
  TextJob bad = good;
  bad.prompt[50] = 1000000;
  const Submitted first = submit(good);
  const Submitted wrong = submit(bad);
  TextJob odd = good;
  odd.sampling.min_p = 2;
  const Submitted refused = submit(odd);
  ASSERT_TRUE(first.text().wait_end());
  ASSERT_TRUE(wrong.text().wait_end());
  ASSERT_TRUE(refused.text().wait_end());
  EXPECT_EQ(first.text().tokens(), expected);
  EXPECT_EQ(wrong.text().end(), TextEnd::kError);
  test::expect_error(wrong.text().status(), StatusCode::kInvalidArgument, {"1000000"});
  EXPECT_EQ(refused.text().end(), TextEnd::kError);
}

TEST_F(SchedulerTest, AnExceptionIsItsOwnTextsAlone) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3));
  const TextJob good = greedy_job(prompt_of(100, 977), 30);
  const Ids expected = alone(good);
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 3}));
  const auto thrower = std::make_shared<TextCollector>();
  thrower->next_of = [](std::size_t n) -> TextListener::Next {
    if (n == 3) throw std::runtime_error("a listener's own");
    return {};
  };
  const auto ticket = scheduler_->submit(good, {thrower});
  TextJob odd = good;
  odd.make_filter = []() -> std::unique_ptr<TokenFilter> { throw std::bad_alloc(); };
  const Submitted refused = submit(odd);
  const Submitted first = submit(good);
  ASSERT_TRUE(thrower->wait_end());
  ASSERT_TRUE(refused.text().wait_end());
  ASSERT_TRUE(first.text().wait_end());
  EXPECT_EQ(thrower->end(), TextEnd::kError);
  EXPECT_EQ(thrower->status().message(), "a listener's own");
  EXPECT_EQ(refused.text().end(), TextEnd::kError);
  EXPECT_EQ(first.text().tokens(), expected);
}

// ---- What is drawn ----

TEST_F(SchedulerTest, StopsWhereItShould) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3));
  TextJob job = greedy_job(prompt_of(100, 977), 30);
  const Ids whole = alone(job);
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 1}));
  job.stop_ids = {whole[7]};
  const std::size_t first =
      static_cast<std::size_t>(std::find(whole.begin(), whole.end(), whole[7]) - whole.begin());
  auto text = run(job);
  EXPECT_EQ(text->end(), TextEnd::kStopToken);
  EXPECT_EQ(text->times().stop_id, whole[7]);
  EXPECT_EQ(text->tokens(), Ids(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
  job.stop_ids.clear();
  job.max_tokens = 0;
  text = run(job);
  EXPECT_EQ(text->end(), TextEnd::kLength);
  EXPECT_TRUE(text->tokens().empty());
  job.has_limit = false;
  text = run(job);
  EXPECT_EQ(text->end(), TextEnd::kContext);
  EXPECT_EQ(text->tokens().size(), 2048U - 100 + 1);
}

// Allows everything and notes what it is told.
class NotedRemaining : public TokenFilter {
 public:
  explicit NotedRemaining(std::vector<std::uint64_t>& told) : told_(told) {}
  bool is_active() const override { return true; }
  void set_remaining(std::uint64_t tokens) override { told_.push_back(tokens); }
  bool allows(std::int32_t) override { return true; }
  void mask(std::span<float>) override {}
  void accept(std::int32_t) override {}

 private:
  std::vector<std::uint64_t>& told_;
};

// Down to one at the last token, whether the limit ends the text or the context.
TEST_F(SchedulerTest, TellsFiltersHowManyTokensMayStillCome) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 2));
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 2}));
  for (const bool has_limit : {true, false}) {
    TextJob job = greedy_job(prompt_of(has_limit ? 20 : 2044, 5), 6);
    job.has_limit = has_limit;
    job.choices = 2;
    std::array<std::vector<std::uint64_t>, 2> told;
    job.make_filter = [&told, made = std::size_t{0}]() mutable {
      return std::make_unique<NotedRemaining>(told[made++]);
    };
    const Submitted submitted = submit(job);
    for (const auto& text : submitted.texts) {
      ASSERT_TRUE(text->wait_end());
      EXPECT_EQ(text->end(), has_limit ? TextEnd::kLength : TextEnd::kContext);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      std::vector<std::uint64_t> expected;
      for (std::size_t left = submitted.text(i).tokens().size(); left > 0; --left) {
        expected.push_back(left);
      }
      EXPECT_FALSE(expected.empty());
      EXPECT_EQ(told[i], expected);
    }
  }
}

TEST_F(SchedulerTest, ForcedTokensAreParts) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3));
  TextJob job = greedy_job(prompt_of(100, 977), 5);
  const Ids start_ids = alone(job);
  const Ids forced{11, 12, 13};
  const TextJob rest = greedy_job(joined(joined(job.prompt, start_ids), forced), 6);
  const Ids expected = joined(joined(start_ids, forced), alone(rest));
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 1}));
  job.max_tokens = 14;
  const auto text = std::make_shared<TextCollector>();
  text->next_of = [&](std::size_t n) {
    return TextListener::Next{.goes_on = true, .forced = n == 5 ? forced : Ids{}};
  };
  const auto ticket = scheduler_->submit(job, {text});
  ASSERT_TRUE(text->wait_end());
  EXPECT_EQ(text->tokens(), expected);
}

TEST_F(SchedulerTest, TellsHowProbableTokensWere) {
  ASSERT_NO_FATAL_FAILURE(open(Way::kBytes, 3));
  TextJob job = greedy_job(prompt_of(100, 977), 3);
  std::vector<TokenStep> expected;
  const auto collect = [&](std::size_t index, std::span<const float> logits) -> Status {
    if (index + 1 == job.prompt.size()) return Status::ok();
    MOE_ASSIGN_OR_RETURN(TokenStep step, token_chances(logits, job.prompt[index + 1], 2));
    expected.push_back(std::move(step));
    return Status::ok();
  };
  ASSERT_OK(engine_->forward(job.prompt, 0, collect));
  const Ids tokens = alone(job);
  ASSERT_NO_FATAL_FAILURE(start({.parallel = 1, .slice_tokens = 30}));
  run(job);  // what it leaves is of no use to the next
  job.top_logprobs = 2;
  job.prompt_logprobs = true;
  const auto text = run(job);
  EXPECT_EQ(text->tokens(), tokens);
  EXPECT_EQ(text->times().cached_tokens, 0U);
  ASSERT_EQ(text->prompt_steps().size(), 99U);
  for (std::size_t i = 0; i < 99; ++i) {
    EXPECT_EQ(text->prompt_steps()[i].token.id, job.prompt[i + 1]);
    EXPECT_EQ(text->prompt_steps()[i].token.logprob, expected[i].token.logprob) << i;
    ASSERT_EQ(text->prompt_steps()[i].top.size(), 2U);
  }
  for (const TokenStep& step : text->steps()) {
    ASSERT_EQ(step.top.size(), 2U);
    EXPECT_EQ(step.top[0].id, step.token.id) << "greedy takes the most probable";
    EXPECT_LT(step.token.logprob, 0);
  }
}

}  // namespace
}  // namespace moepack::scheduler_test
