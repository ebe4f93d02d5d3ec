// The plan against what is allocated, counted by a hook; and what it refuses.
#include "runtime/model/memory_plan.h"

#include <gtest/gtest.h>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/model_dir.h"
#include "runtime/model/byte_counts.h"
#include "runtime/model/resident_tensors.h"
#include "tests/support/allocation_count.h"
#include "tests/support/converted_model.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"

namespace moepack {
namespace {

std::vector<std::int32_t> ids_of(std::size_t count) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>((i * 977 + 31) % 250);
  return ids;
}

// Fills every sequence to the end of its context and gives all logits. Returns the most memory that
// was held meanwhile, above what was held before the engine was opened.
std::size_t peak_of_run(const EngineOptions& options, MemoryPlan& plan) {
  const std::vector<std::int32_t> ids = ids_of(options.context);
  const LogitsSink ignore = [](std::size_t, std::span<const float>) { return Status::ok(); };
  const std::size_t before = test::allocated_bytes();
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  if (!engine.is_ok()) return 0;
  plan = engine.value()->memory_plan();
  test::restart_peak();
  std::vector<Sequence> sequences;
  std::vector<Slice> slices;
  for (std::uint32_t i = 0; i < options.sequences; ++i) {
    auto sequence = engine.value()->make_sequence();
    EXPECT_TRUE(sequence.is_ok()) << sequence.status().message();
    sequences.push_back(std::move(sequence).value());
  }
  for (Sequence& sequence : sequences) slices.push_back({&sequence, ids, 0, ignore});
  for (const Status& status : engine.value()->forward(slices)) {
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
  return test::peak_allocated_bytes() - before;
}

void expect_plan_covers(EngineOptions options, const std::string& what) {
  MemoryPlan plan;
  const std::size_t peak = peak_of_run(options, plan);
  EXPECT_GT(peak, 0U) << what;
  EXPECT_LE(peak, plan.total_bytes()) << what;
  // A plan that is much too large would pass, and refuse what could run. Not every run fills the
  // expert cache.
  EXPECT_GE(2 * peak + (std::size_t{2} << 20), plan.fixed_bytes()) << what;
}

void expect_plans_cover(const std::filesystem::path& model) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> any,
                       Engine::open(test::reference_options(model)));
  const std::uint64_t floor = any->memory_plan().cache_floor_bytes;
  for (const Backend backend : {Backend::kReference, Backend::kCpu}) {
    for (const std::uint32_t threads : {1U, 3U}) {
      for (const std::uint32_t chunk : {1U, 16U, 512U}) {
        for (const std::uint64_t context : {3U, 300U}) {
          for (const std::uint32_t sequences : {1U, 2U}) {
            EngineOptions options = backend == Backend::kCpu ? test::fast_options(model)
                                                             : test::reference_options(model);
            options.threads = threads;
            options.chunk_tokens = chunk;
            options.context = context;
            options.sequences = sequences;
            options.cache_bytes = context == 3 ? 0 : floor;
            expect_plan_covers(options, "threads " + std::to_string(threads) + ", chunk " +
                                            std::to_string(chunk) + ", context " +
                                            std::to_string(context) + ", sequences " +
                                            std::to_string(sequences));
          }
        }
      }
    }
  }
}

TEST(MemoryPlanned, CoversTheTinyModel) {
  const test::TempDir dir;
  test::write_tiny_model(dir / "checkpoint", {});
  expect_plans_cover(test::convert_for_test(dir / "checkpoint", dir));
}

TEST(MemoryPlanned, CoversATinyModelOfThreeBits) {
  const test::TempDir dir;
  test::TinyModelOptions tiny;
  tiny.layout = test::TinyLayout::kMlx;
  tiny.bits = 3;
  tiny.full_attention_interval = 2;
  test::write_tiny_model(dir / "checkpoint", tiny);
  expect_plans_cover(test::convert_for_test(dir / "checkpoint", dir));
}

TEST(MemoryPlanned, CoversTheDemo) {
  const test::TempDir dir;
  expect_plans_cover(test::convert_for_test(test::demo_mlx_model(), dir));
}

// ---- What is refused, from numbers alone ----

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
                     {"keys and values", "smaller -c", "1048576"});
  request_.context = 512;
  request_.chunk_tokens = 60000;
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument, {"--chunk", "60000"});
}

TEST_F(MemoryRefused, AModelThatCannotFitSaysSo) {
  request_.available_bytes = 1000;
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument, {"alone", "1000"});
  request_.available_bytes = 0;  // known, and nothing is left
  EXPECT_FALSE(plan(request_).is_ok());
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
  for (const std::uint64_t context :
       {kMaxContext + 1, std::uint64_t{1} << 40, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    request_.context = context;
    test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument, {"-c"});
  }
  request_.context = kMaxContext;
  request_.chunk_tokens = ~std::uint64_t{0};
  test::expect_error(plan(request_).status(), StatusCode::kInvalidArgument, {"--chunk"});
  request_.chunk_tokens = 64;
  EXPECT_OK(plan(request_));
  request_.sequences = ~std::uint64_t{0};
  EXPECT_FALSE(plan(request_).is_ok());
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
}  // namespace moepack
