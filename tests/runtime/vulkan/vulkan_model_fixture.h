// What tests of whole models on a GPU share: a model directory of their own, an engine on the
// device beside the reference, and logits of both.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "tests/runtime/vulkan/driver_stays.h"
#include "tests/support/converted_model.h"
#include "tests/support/relative_error.h"
#include "tests/support/tiny_model.h"

namespace moepack {

using Ids = std::vector<std::int32_t>;

// Float32 sums in another order: the tolerance of the golden tests; untrained weights make more of
// it, on the processor too.
constexpr double kTolerance = 3e-6;
constexpr double kUntrainedTolerance = 1.5e-5;

inline Ids random_ids(std::size_t count, std::uint32_t vocab, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  Ids ids(count);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % vocab);
  return ids;
}

class VulkanModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!DriverStays::reason().empty()) GTEST_SKIP() << "SKIPPED: " << DriverStays::reason();
  }

  std::filesystem::path tiny(const test::TinyModelOptions& options = {}) {
    test::write_tiny_model(dir_ / "checkpoint", options);
    return test::convert_for_test(dir_ / "checkpoint", dir_);
  }

  static EngineOptions on_device(const std::filesystem::path& model) {
    EngineOptions options = test::reference_options(model);
    options.backend = Backend::kVulkan;
    return options;
  }

  static std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return engine.is_ok() ? std::move(engine).value() : nullptr;
  }

  // Logits of all tokens, given in pieces of these sizes and then one by one.
  static std::vector<float> logits(Engine& engine, const Ids& ids,
                                   const std::vector<std::size_t>& pieces) {
    std::vector<float> all;
    const LogitsSink sink = [&](std::size_t, std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
      return Status::ok();
    };
    engine.reset();
    std::span<const std::int32_t> rest(ids);
    for (std::size_t i = 0; !rest.empty(); ++i) {
      const std::size_t count = std::min(rest.size(), i < pieces.size() ? pieces[i] : 1);
      EXPECT_OK(engine.forward(rest.first(count), 0, sink));
      rest = rest.subspan(count);
    }
    return all;
  }

  // A few batches whose stages are ordered so; empty where the engine did not open, which is a
  // failure.
  struct OrderedRun {
    std::vector<float> logits;
    std::uint64_t barriers = 0;
  };
  static OrderedRun run_ordered(EngineOptions options, StageOrdering order) {
    options.gpu_order = order;
    const auto engine = open(options);
    EXPECT_NE(engine, nullptr);
    if (engine == nullptr) return {};
    const Ids ids = random_ids(9, engine->config().vocab_size);
    std::vector<float> all = logits(*engine, ids, {4, 1, 1, 3});
    EXPECT_FALSE(all.empty());
    return {std::move(all), engine->device_report()->work.barriers};
  }

  // Without `pieces` a prompt in tiles, a few rows at once, and single tokens.
  static void expect_like_reference(const EngineOptions& options, double tolerance = kTolerance,
                                    const std::vector<std::size_t>& pieces = {37, 5}) {
    EngineOptions reference = test::reference_options(options.model);
    const auto ours = open(options);
    const auto theirs = open(reference);
    ASSERT_TRUE(ours != nullptr && theirs != nullptr);
    const Ids ids = random_ids(48, ours->config().vocab_size);
    const std::vector<float> expected = logits(*theirs, ids, {48});
    const std::vector<float> given = logits(*ours, ids, pieces);
    EXPECT_LT(test::relative_error(given, expected), tolerance);
    EXPECT_EQ(ours->kernels_name(), "vulkan");
  }

  test::TempDir dir_;
};

}  // namespace moepack
