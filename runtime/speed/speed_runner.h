// The tests of llama-bench: how many tokens a second a model computes of a prompt and while it
// generates, at a depth of tokens that it has already seen.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/model/sequence.h"
#include "runtime/model/stage_times.h"
#include "runtime/speed/read_rate.h"
#include "runtime/store/expert_store.h"

namespace moepack {

struct SpeedTest {
  std::uint64_t prompt = 0;     // tokens computed together, with the logits of the last one
  std::uint64_t generated = 0;  // tokens after them, one by one, with the logits of each
  std::uint64_t depth = 0;      // tokens seen before; they are not timed

  std::uint64_t tokens() const { return prompt + generated; }
  std::uint64_t context() const { return depth + tokens(); }
};
// As llama-bench names it: "pp512", "tg128", "pp512+tg128", "tg128 @ d4096".
std::string speed_test_name(const SpeedTest& test);

struct SpeedResult {
  SpeedTest test;
  std::chrono::system_clock::time_point start;  // of the test, with its warm-up
  std::vector<double> samples_ns;               // of each repetition
  ExpertStoreStats experts;                     // of all repetitions
  RoutingAgreement agreement;                   // the same
  // Bytes that a generated token reads: ModelSize::token_bytes, keys and values at the middle of
  // the generated tokens, recurrent states as they are read and written. 0 unless the test only
  // generates.
  double token_bytes = 0;
  StageSeconds stages;  // of all repetitions; zeros unless the engine's StageTimes run
  // Of memory, bytes a second: the mean of the repetitions, of each what was measured before and
  // behind it. 0 without a meter.
  double read_rate = 0;

  std::vector<double> samples_ts() const;  // tokens a second of each repetition
};

struct SpeedOptions {
  std::uint32_t repetitions = 5;
  // An untimed run before each test. Where all experts fit into the cache, a prompt of a chunk
  // before the first test, which brings nearly all of them there.
  bool warm_up = true;
  // Measures between the repetitions: the memory of a machine that others use may be fast for some
  // seconds and slow for the next. Outlives the runner.
  ReadRateMeter* meter = nullptr;
};

// Runs tests on one engine, which has room for two sequences and outlives it. Token ids are drawn
// evenly from the vocabulary, from a fixed seed; nothing is sampled. Every repetition starts from a
// fresh sequence, or from a copy of one at the test's depth. One thread at a time.
class SpeedRunner {
 public:
  SpeedRunner(Engine& engine, const SpeedOptions& options);

  // The errors of the engine; kInvalidArgument for a test without tokens.
  Result<SpeedResult> run(const SpeedTest& test);

 private:
  std::vector<std::int32_t> random_tokens(std::uint64_t count);
  Status fill_cache();
  Status go_to_depth(std::uint64_t depth);
  Status feed(Sequence& sequence, std::span<const std::int32_t> tokens, bool wants_logits);
  Status repeat(const SpeedTest& test, SpeedResult* result);
  Result<double> token_bytes(const SpeedTest& test);
  double read_rate() const;

  Engine& engine_;
  SpeedOptions options_;
  std::mt19937_64 random_{1};
  std::optional<Sequence> base_;  // at the depth of the last test
  bool is_cache_filled_ = false;
};

}  // namespace moepack
