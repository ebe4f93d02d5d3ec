// What the memory plan refuses, from numbers alone. That it covers what is allocated:
// memory_peak_test.cpp.
#include "runtime/model/memory_plan.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/limits.h"
#include "formats/model_dir.h"
#include "runtime/model/byte_counts.h"
#include "runtime/model/chunk_choice.h"
#include "runtime/model/resident_tensors.h"
#include "tests/support/converted_model.h"
#include "tests/support/tiny_model.h"

namespace moepack::memory_plan_test {
namespace {

class MemoryRefused : public ::testing::Test {
 protected:
  void SetUp() override {
    request_.context = 512;
    request_.chunk_tokens = 64;
    request_.threads = 2;
    test::TinyModelOptions tiny;
    tiny.expert_width = 40;  // records are no whole pages
    test::write_tiny_model(dir_ / "checkpoint", tiny);
    const auto model = test::convert_for_test(dir_ / "checkpoint", dir_);
    ASSERT_OK_AND_ASSIGN(model_, open_model_dir(model, ""));
    ASSERT_OK_AND_ASSIGN(fitting_, plan(request_));
    request_.available_bytes = fitting_.total_bytes();
    request_.cache_bytes = fitting_.cache_bytes;
  }
  Result<MemoryPlan> plan(const MemoryRequest& request) const {
    return plan_memory(model_.config, resident_memory(model_), model_.pack, request);
  }

  void expect_missing_bytes(const std::string& message, const MemoryRequest& asked);
  std::optional<std::size_t> expect_remedy_helps(const MemoryRequest& asked);

  test::TempDir dir_;
  ModelDir model_;
  MemoryRequest request_;
  MemoryPlan fitting_;
};

TEST_F(MemoryRefused, ExactlyWhatIsAvailableFits) {
  EXPECT_OK(plan(request_));
  --*request_.available_bytes;
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument,
                     {std::to_string(fitting_.total_bytes()), "are available", "--cache-mb"});
}

TEST_F(MemoryRefused, ALongerContextNamesItsFlag) {
  request_.context = 1 << 20;
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument,
                     {"keys and values", "give -c 512 or less (now 1048576)"});
  request_.context = 512;
  request_.chunk_tokens = 60000;
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument,
                     {"give --chunk 64 or less (now 60000)"});
}

TEST_F(MemoryRefused, AModelThatCannotFitSaysSo) {
  request_.available_bytes = 1000;
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument,
                     {"no flag helps", "alone take", "1000"});
  request_.available_bytes = 0;  // known, and nothing is left
  EXPECT_FALSE(plan(request_).is_ok());
}

// What does not fit has a plan all the same, with the error of plan_memory().
TEST_F(MemoryRefused, IsToldWithItsPlan) {
  const auto judge = [&] {
    return judge_memory(model_.config, resident_memory(model_), model_.pack, request_);
  };
  EXPECT_OK(judge().verdict);
  --*request_.available_bytes;
  const MemoryJudgement judgement = judge();
  EXPECT_EQ(judgement.plan.total_bytes(), fitting_.total_bytes());
  EXPECT_EQ(judgement.verdict.message(), plan(request_).status().message());
  request_.context = kMaxSequenceTokens + 1;
  EXPECT_EQ(judge().verdict.message(), plan(request_).status().message());
}

// The way to a larger cache is a value with which it fits, and the largest such.
TEST_F(MemoryRefused, ALargerCacheNamesWhatGivesWay) {
  request_.cache_bytes = 0;
  request_.available_bytes = fitting_.fixed_bytes() + fitting_.cache_floor_bytes;
  const std::uint64_t wanted = fitting_.cache_floor_bytes + (fitting_.scratch_bytes / 2);
  const std::string way =
      larger_cache_remedy(model_.config, resident_memory(model_), model_.pack, request_, wanted);
  const std::size_t at = way.find("--chunk ");
  ASSERT_NE(at, std::string::npos) << way;
  const auto holds = [&](std::uint64_t chunk) {
    MemoryRequest changed = request_;
    changed.chunk_tokens = chunk;
    changed.cache_bytes = wanted;
    return plan(changed).is_ok();
  };
  const std::uint64_t chunk = std::stoull(way.substr(at + 8));
  EXPECT_TRUE(holds(chunk)) << way;
  EXPECT_FALSE(holds(chunk + 1)) << way;
  EXPECT_EQ(larger_cache_remedy(model_.config, resident_memory(model_), model_.pack, request_,
                                fitting_.cache_floor_bytes),
            "");
}

// Without a cache budget the cache gives way first, down to its floor.
TEST_F(MemoryRefused, TheAutomaticCacheGivesWay) {
  request_.cache_bytes = 0;
  request_.available_bytes = fitting_.fixed_bytes() + fitting_.cache_floor_bytes;
  ASSERT_OK_AND_ASSIGN(const MemoryPlan least, plan(request_));
  EXPECT_EQ(least.cache_bytes, fitting_.cache_floor_bytes);
  --*request_.available_bytes;
  EXPECT_FALSE(plan(request_).is_ok());
}

TEST_F(MemoryRefused, NumbersThatWouldWrap) {
  request_.available_bytes.reset();
  for (const std::uint64_t context : {kMaxSequenceTokens + 1, std::uint64_t{1} << 40,
                                      std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    request_.context = context;
    test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument, {"-c"});
  }
  request_.context = kMaxSequenceTokens;
  request_.chunk_tokens = ~std::uint64_t{0};
  EXPECT_OK(plan(request_));  // a batch has no more tokens than the sequences
  request_.sequences = ~std::uint64_t{0};
  EXPECT_FALSE(plan(request_).is_ok());
}

// The requests that a remedy names: each of its ways, applied.
std::vector<MemoryRequest> remedied(const std::string& message, const MemoryRequest& request) {
  std::vector<MemoryRequest> found;
  const std::string text = message.substr(message.rfind("; ") + 2);
  const bool without_cache = text.find("leave --cache-mb out") != std::string::npos;
  const auto number_after = [](const std::string& way, const std::string& flag) {
    const std::size_t at = way.find(flag + " ");
    return at == std::string::npos ? std::optional<std::uint64_t>()
                                   : std::stoull(way.substr(at + flag.size() + 1));
  };
  std::string left = text;
  // These stand before the ways that they go with.
  bool one_thread = false;
  bool no_snapshots = false;
  bool one_sequence = false;
  while (!left.empty()) {
    const std::size_t end = std::min(left.find(", or "), left.size());
    const std::string way = left.substr(0, end);
    left = end == left.size() ? "" : left.substr(end + 5);
    MemoryRequest changed = request;
    one_thread = one_thread || way.find("-t 1") != std::string::npos;
    if (without_cache) changed.cache_bytes = 0;
    if (one_thread) changed.threads = 1;
    no_snapshots = no_snapshots || way.find("--checkpoint-mb 0 and ") != std::string::npos;
    one_sequence = one_sequence || way.find("--parallel 1 and ") != std::string::npos;
    const auto snapshots = number_after(way, "--checkpoint-mb");
    if (no_snapshots) {
      changed.snapshot_bytes = 0;
    } else if (snapshots.has_value()) {
      changed.snapshot_bytes = *snapshots << 20;
    }
    if (one_sequence) changed.sequences = 1;
    changed.sequences = number_after(way, "--parallel").value_or(changed.sequences);
    if (!without_cache) {
      const auto mebibytes = number_after(way, "--cache-mb");
      if (mebibytes.has_value()) changed.cache_bytes = *mebibytes << 20;
    }
    changed.chunk_tokens = number_after(way, "--chunk").value_or(changed.chunk_tokens);
    changed.context = number_after(way, "-c").value_or(changed.context);
    found.push_back(changed);
  }
  return found;
}

// Where a message says that no flag helps, none does, and as many bytes as it says are missing.
void MemoryRefused::expect_missing_bytes(const std::string& message, const MemoryRequest& asked) {
  const std::string before = " bytes, ";
  const std::size_t at = message.find(before, message.find("alone take"));
  ASSERT_NE(at, std::string::npos) << message;
  MemoryRequest least = asked;
  least.context = std::min<std::uint64_t>(3, asked.context);
  least.chunk_tokens = 1;
  least.threads = 1;
  least.cache_bytes = 0;
  least.snapshot_bytes = 0;
  least.sequences = 1;
  *least.available_bytes += std::stoull(message.substr(at + before.size()));
  EXPECT_TRUE(plan(least).is_ok()) << message;
  --*least.available_bytes;
  EXPECT_FALSE(plan(least).is_ok()) << message;
}

// Gives the number of ways that the message of a refusal names; 0: no flag helps; nullopt: a plan.
std::optional<std::size_t> MemoryRefused::expect_remedy_helps(const MemoryRequest& asked) {
  const auto made = plan(asked);
  if (made.is_ok()) return std::nullopt;
  const std::string message = made.status().message();
  if (message.find("no flag helps") != std::string::npos) {
    expect_missing_bytes(message, asked);
    return 0;
  }
  const std::vector<MemoryRequest> ways = remedied(message, asked);
  for (const MemoryRequest& way : ways) {
    const auto again = plan(way);
    EXPECT_TRUE(again.is_ok()) << message << "\nthen: " << again.status().message();
  }
  return ways.size();
}

// A server that keeps states of earlier turns, and answers several at once.
TEST_F(MemoryRefused, StatesThatAreKeptAndSequencesAreNamed) {
  request_.snapshot_bytes = std::uint64_t{256} << 20;
  request_.available_bytes = fitting_.total_bytes() + (std::uint64_t{100} << 20);
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument,
                     {"saved states 268435456", "--checkpoint-mb 100 or less (now 256)"});
  request_.snapshot_bytes = 0;
  request_.sequences = 64;
  request_.available_bytes = fitting_.total_bytes() + (std::uint64_t{1} << 20);
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument,
                     {"--parallel ", " or less (now 64)"});
}

TEST_F(MemoryRefused, EveryRemedyHelps) {
  const std::uint64_t floor = fitting_.cache_floor_bytes;
  std::vector<MemoryRequest> requests;
  for (const std::uint64_t context : {2U, 512U, 60000U}) {
    for (const std::uint64_t chunk : {1U, 64U, 4096U}) {
      for (const std::uint64_t threads : {1U, 64U}) {
        for (const std::uint64_t cache :
             {std::uint64_t{0}, floor / 2, floor, std::uint64_t{1} << 20, std::uint64_t{1} << 40}) {
          requests.emplace_back();
          requests.back().context = context;
          requests.back().chunk_tokens = chunk;
          requests.back().threads = threads;
          requests.back().cache_bytes = cache;
          requests.push_back(requests.back());
          requests.back().snapshot_bytes = std::uint64_t{4} << 20;
          requests.back().sequences = 3;
        }
      }
    }
  }
  std::map<std::size_t, std::size_t> refusals;  // by the number of ways out
  for (MemoryRequest& request : requests) {
    for (std::uint64_t bytes = 300'000; bytes < (1U << 28); bytes = bytes * 17 / 16) {
      request.available_bytes = bytes;
      if (const auto ways = expect_remedy_helps(request); ways.has_value()) ++refusals[*ways];
      if (HasFailure()) return;
    }
  }
  for (const std::size_t ways : {0U, 1U, 2U, 3U, 4U})
    EXPECT_GT(refusals[ways], 30U) << ways << " ways";
}

// A window below a mebibyte, between the least cache and what is there: no value of --cache-mb
// lies in it.
TEST_F(MemoryRefused, AWindowBetweenTwoMebibytes) {
  request_.available_bytes = fitting_.fixed_bytes() + fitting_.cache_floor_bytes + 1;
  request_.cache_bytes = std::uint64_t{1} << 40;
  ASSERT_NE(fitting_.cache_floor_bytes % (1 << 20), 0U);
  ASSERT_GT(fitting_.pack_bytes, fitting_.cache_floor_bytes + 1);
  const Status status = plan(request_).status();
  test::expect_error(status, StatusCode::kInvalidArgument, {"leave --cache-mb out"});
  request_.cache_bytes = 0;
  EXPECT_OK(plan(request_));
}

// At every amount of memory: the largest size that fits and leaves the cache alone, else the least;
// a refusal where that does not fit either.
TEST_F(MemoryRefused, TheAutomaticChunkIsTheLargestThatFits) {
  request_.chunk_tokens = 0;
  request_.context = 4096;
  std::map<std::uint64_t, std::size_t> chosen;
  for (const bool is_automatic : {true, false}) {
    request_.cache_bytes = is_automatic ? 0 : fitting_.cache_floor_bytes;
    for (std::uint64_t bytes = 300'000; bytes < (1U << 26); bytes = bytes * 65 / 64) {
      request_.available_bytes = bytes;
      std::uint64_t wanted = kAutomaticChunks.back();
      MemoryRequest of_512 = request_;
      of_512.chunk_tokens = 512;
      const auto usual = plan(of_512);
      const bool all = usual.is_ok() && usual.value().cache_bytes == usual.value().pack_bytes;
      for (const std::uint64_t tokens : kAutomaticChunks) {
        if (all && tokens > 512) continue;
        MemoryRequest explicit_chunk = request_;
        explicit_chunk.chunk_tokens = tokens;
        const auto made = plan(explicit_chunk);
        if (!made.is_ok()) continue;
        const MemoryPlan& p = made.value();
        const std::uint64_t share = tokens > 512 ? 16 : 8;
        if (is_automatic && p.cache_bytes < p.pack_bytes &&
            share * p.scratch_bytes > p.cache_bytes) {
          continue;
        }
        wanted = tokens;
        break;
      }
      const auto made = plan(request_);
      if (!made.is_ok()) {
        request_.chunk_tokens = kAutomaticChunks.back();
        EXPECT_FALSE(plan(request_).is_ok()) << bytes;
        request_.chunk_tokens = 0;
        continue;
      }
      EXPECT_EQ(made.value().chunk_tokens, wanted) << bytes;
      ++chosen[made.value().chunk_tokens];
    }
  }
  // A tiny model's experts are smaller than the activations of many tokens: the explicit budget
  // below the pack gives the others.
  EXPECT_EQ(chosen.size(), kAutomaticChunks.size());
  request_.available_bytes.reset();
  request_.cache_bytes = 0;
  ASSERT_OK_AND_ASSIGN(const MemoryPlan unknown, plan(request_));
  EXPECT_EQ(unknown.chunk_tokens, 512U);
  request_.available_bytes = 1000;
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument, {"no flag helps"});
}

TEST_F(MemoryRefused, RecordsCountAsWholePages) {
  std::uint64_t padded = 0;
  std::uint64_t stored = 0;
  for (std::uint32_t l = 0; l < model_.pack.num_layers; ++l) {
    for (std::uint32_t e = 0; e < model_.pack.num_experts; ++e) {
      const std::uint64_t bytes = model_.pack.layout_of(l, e).record_bytes;
      stored += bytes;
      padded += (bytes + 4095) / 4096 * 4096;
    }
  }
  ASSERT_NE(padded, stored) << "the model must show the difference";
  EXPECT_EQ(fitting_.pack_bytes, padded);
}

}  // namespace
}  // namespace moepack::memory_plan_test
