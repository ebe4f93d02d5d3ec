// Routing, the sorting of rows by expert, norms and the largest logit, against the CPU's functions.
#include <algorithm>
#include <cmath>

#include "runtime/model/compute.h"
#include "runtime/model/router.h"
#include "shaders/argmax_args.h"
#include "shaders/group_rows_args.h"
#include "shaders/rms_norm_args.h"
#include "shaders/route_args.h"
#include "tests/runtime/vulkan/kernel_inputs.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"

namespace moepack::route_kernels_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kNoError = 0xffffffffU;

using shader::Choice;

class RouteKernelsTest : public VulkanTest {
 protected:
  struct RouteCase {
    std::uint32_t experts = 0;
    std::uint32_t top_k = 0;
    bool renormalise = true;
    bool has_shared = false;
    bool has_bias = false;
    std::vector<float> scales = {};  // of the experts

    std::uint32_t slots() const { return top_k + (has_shared ? 1 : 0); }
  };
  struct Routed {
    std::vector<Choice> choices;
    std::vector<std::uint32_t> row_error;
  };

  // Logits lie beside the shared expert's, as a matrix with both gives them.
  static Routed route(const RouteCase& c, const TestBatch& batch, const std::vector<float>& logits,
                      std::uint32_t layer, const std::vector<std::uint32_t>& errors) {
    const auto rows = static_cast<std::uint32_t>(batch.rows.size());
    const DeviceBuffer row_table = put(batch.rows);
    const DeviceBuffer logit_rows = put(logits);
    const DeviceBuffer choices = put(std::vector<Choice>(rows * c.slots(), Choice{77, 77}));
    const DeviceBuffer row_error = put(errors);
    std::vector<float> numbers = c.has_bias ? random_values(c.experts, 1, 7) : std::vector<float>();
    numbers.insert(numbers.end(), c.scales.begin(), c.scales.end());
    const DeviceBuffer number_rows = put(numbers.empty() ? std::vector<float>{0} : numbers);
    const shader::RouteArgs args{.rows = row_table.address(),
                                 .logits = logit_rows.address(),
                                 .shared_logits = logit_rows.address() + c.experts * sizeof(float),
                                 .choices = choices.address(),
                                 .row_error = row_error.address(),
                                 .bias = number_rows.address(),
                                 .logits_stride = c.experts + 1,
                                 .shared_stride = c.experts + 1,
                                 .has_shared = c.has_shared ? 1U : 0U,
                                 .renormalise = c.renormalise ? 1U : 0U,
                                 .layer = layer};
    const VulkanKernel& kernel = VulkanTest::kernel(
        "route",
        {64, c.experts, c.top_k, 0, c.has_bias ? 1U : 0U, 1, 1, 0, 1, c.scales.empty() ? 0U : 1U});
    CommandList list(device());
    list.dispatch(kernel, args, {rows, 1, 1});
    run(list);
    return {get<Choice>(choices, rows * c.slots()), get<std::uint32_t>(row_error, rows)};
  }

  static void check_row(const RouteCase& c, const std::vector<float>& logits, std::size_t row,
                        const std::vector<Choice>& got) {
    std::vector<float> scratch(c.experts);
    std::vector<Assignment> want(c.top_k);
    std::vector<float> at = part(logits, row * (c.experts + 1), c.experts + 1);
    const std::vector<float> bias = random_values(c.experts, 1, 7);
    for (std::uint32_t e = 0; c.has_bias && e < c.experts; ++e) at[e] += bias[e];
    Routing routing(SoftmaxRouterSpec{c.renormalise});
    routing.expert_scales = c.scales;
    route_row(routing, at.data(), 0, scratch, want);
    for (std::uint32_t k = 0; k < c.top_k; ++k) {
      EXPECT_EQ(got[k].expert, want[k].expert) << row << " " << k;
      EXPECT_NEAR(got[k].weight, want[k].weight, 2e-6F * std::fabs(want[k].weight) + 1e-37F);
    }
    if (!c.has_shared) return;
    EXPECT_EQ(got[c.top_k].expert, c.experts);
    EXPECT_NEAR(got[c.top_k].weight, sigmoid(at[c.experts]), 1e-6F);
  }
};

TEST_F(RouteKernelsTest, ChoosesAsTheCpu) {
  TestBatch batch;
  batch.add(4, 5);
  batch.add(0, 1, false);
  batch.add(9, 3);
  for (const RouteCase& c : {RouteCase{256, 8, true, true}, RouteCase{1024, 32, false, true},
                             RouteCase{7, 7, true, false}, RouteCase{33, 1, false, false}}) {
    std::vector<float> logits = random_values(9 * (c.experts + 1), 3.0F, 5);
    // Ties, and probabilities that underflow to zero, of which the lowest numbers come first.
    for (std::uint32_t e = 0; e < c.experts; ++e) {
      logits[e] = std::round(logits[e]);
      logits[(c.experts + 1) + e] = e == 5 ? 300.0F : -static_cast<float>((e * 7) % 5);
    }
    const Routed got = route(c, batch, logits, 3, std::vector<std::uint32_t>(9, kNoError));
    EXPECT_EQ(got.row_error, std::vector<std::uint32_t>(9, kNoError));
    for (std::size_t row = 0; row < 9; ++row) {
      const std::vector<Choice> choices = part(got.choices, row * c.slots(), c.slots());
      if (batch.rows[row].live != 0) {
        check_row(c, logits, row, choices);
        continue;
      }
      for (const Choice& choice : choices) {
        EXPECT_EQ(choice.expert, MOE_NO_EXPERT);
        EXPECT_EQ(choice.weight, 0.0F);
      }
    }
  }
}

// Numbers of the experts lie behind a bias, or alone.
TEST_F(RouteKernelsTest, WeightsAreScaledByExpert) {
  TestBatch batch;
  batch.add(4, 5);
  for (const bool has_bias : {false, true}) {
    for (RouteCase c : {RouteCase{128, 8, true, true}, RouteCase{7, 7, false, false}}) {
      c.has_bias = has_bias;
      c.scales = random_values(c.experts, 1, 8);
      const std::vector<float> logits = random_values(5 * (c.experts + 1), 2, 9);
      const Routed got = route(c, batch, logits, 3, std::vector<std::uint32_t>(5, kNoError));
      for (std::size_t row = 0; row < 5; ++row) {
        check_row(c, logits, row, part(got.choices, row * c.slots(), c.slots()));
      }
    }
  }
}

TEST_F(RouteKernelsTest, RowsThatAreNotFiniteGetNoExpertAndTheirFirstLayer) {
  const RouteCase c{40, 4, true, true};
  TestBatch batch;
  batch.add(0, 6);
  std::vector<float> logits = random_values(6 * 41, 1.0F, 6);
  logits[0 * 41 + 39] = std::nanf("");
  logits[2 * 41] = -kInfinity;
  logits[3 * 41 + 40] = kInfinity;  // of the shared expert
  logits[5 * 41 + 7] = kInfinity;
  const Routed got = route(c, batch, logits, 9, {kNoError, kNoError, 30, kNoError, 2, 2});
  EXPECT_EQ(got.row_error, (std::vector<std::uint32_t>{9, kNoError, 9, 9, 2, 2}));
  for (std::size_t row = 0; row < 6; ++row) {
    const std::vector<Choice> choices = part(got.choices, row * c.slots(), c.slots());
    if (row == 1 || row == 4) {
      check_row(c, logits, row, choices);
      continue;
    }
    for (const Choice& choice : choices) {
      EXPECT_EQ(choice.expert, MOE_NO_EXPERT);
      EXPECT_EQ(choice.weight, 0.0F);
    }
  }
}

class GroupRowsTest : public VulkanTest {
 protected:
  static void check(const std::vector<Choice>& choices, std::uint32_t experts, std::uint32_t tile,
                    std::uint32_t threads) {
    const auto count = static_cast<std::uint32_t>(choices.size());
    std::vector<std::uint32_t> want_pairs;
    std::vector<std::uint32_t> want_offsets;
    std::vector<shader::ExpertTile> want_tiles;
    for (std::uint32_t e = 0; e < experts; ++e) {
      const auto first = static_cast<std::uint32_t>(want_pairs.size());
      want_offsets.push_back(first);
      for (std::uint32_t i = 0; i < count; ++i) {
        if (choices[i].expert == e) want_pairs.push_back(i);
      }
      const auto end = static_cast<std::uint32_t>(want_pairs.size());
      for (std::uint32_t at = first; at < end; at += tile) {
        want_tiles.push_back({e, at, std::min(tile, end - at)});
      }
    }
    want_offsets.push_back(static_cast<std::uint32_t>(want_pairs.size()));

    const DeviceBuffer choice_buffer = put(choices);
    const DeviceBuffer pairs = put(std::vector<std::uint32_t>(count + 1, 77));
    const DeviceBuffer offsets = make((experts + 1) * 4);
    const DeviceBuffer tiles = make((count / tile + experts + 1) * sizeof(shader::ExpertTile));
    const DeviceBuffer sizes = put(std::vector<shader::DispatchSize>{{5, 9, 9}, {6, 9, 9}});
    const shader::GroupRowsArgs args{.choices = choice_buffer.address(),
                                     .pairs = pairs.address(),
                                     .offsets = offsets.address(),
                                     .tiles = tiles.address(),
                                     .sizes = sizes.address(),
                                     .count = count,
                                     .tile = tile,
                                     .dispatches = 2};
    const VulkanKernel& kernel = VulkanTest::kernel("group_rows", {threads, experts});
    CommandList list(device());
    list.dispatch(kernel, args, {experts, 1, 1});
    run(list);
    EXPECT_EQ(get<std::uint32_t>(offsets, experts + 1), want_offsets);
    EXPECT_EQ(get<std::uint32_t>(pairs, want_pairs.size()), want_pairs);
    EXPECT_EQ(get<std::uint32_t>(pairs, count + 1).back(), 77U);
    const auto got = get<shader::ExpertTile>(tiles, want_tiles.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].expert, want_tiles[i].expert);
      EXPECT_EQ(got[i].first, want_tiles[i].first);
      EXPECT_EQ(got[i].count, want_tiles[i].count);
    }
    for (const auto& [x, y, z] : get<shader::DispatchSize>(sizes, 2)) {
      EXPECT_TRUE(x == 5 || x == 6);
      EXPECT_EQ(y, want_tiles.size());
      EXPECT_EQ(z, 1U);
    }
  }
};

TEST_F(GroupRowsTest, SortsByExpertThenRow) {
  std::mt19937 random(3);
  for (const std::uint32_t experts : {1U, 9U, 257U, 1025U}) {
    for (const std::uint32_t count : {1U, 64U, 1000U, 4608U}) {
      std::vector<Choice> choices;
      for (std::uint32_t i = 0; i < count; ++i) {
        // Some experts are popular, one pair in nine uses none.
        const auto e = static_cast<std::uint32_t>(random() % experts);
        choices.push_back({i % 9 == 4 ? MOE_NO_EXPERT : i % 3 == 0 ? e / 8 : e, 1.0F});
      }
      check(choices, experts, 32, 256);
    }
  }
  check(std::vector<Choice>(70, Choice{MOE_NO_EXPERT, 0}), 5, 16, 64);
  check(std::vector<Choice>(70, Choice{4, 1}), 5, 1, 1024);
}

class RmsNormTest : public VulkanTest {};

TEST_F(RmsNormTest, AgreesWithTheCpu) {
  std::vector<float> scratch(4096);
  Compute compute(reference_kernels(), 1, scratch);
  for (const std::uint32_t width : {1U, 33U, 2048U, 5003U}) {
    constexpr std::uint32_t kRows = 4;
    const std::uint32_t stride = width + 3;
    std::vector<float> x = random_values(kRows * stride, 2.0F, width);
    for (std::uint32_t i = 0; i < width; ++i) {
      x[stride + i] *= 1e36F;  // squares beyond float32
      x[2 * stride + i] = 0.0F;
      x[3 * stride + i] *= 1e-25F;
    }
    const std::vector<float> factor = random_values(width, 1.0F, 8);
    const DeviceBuffer x_buffer = put(x);
    const DeviceBuffer factor_buffer = put(factor);
    const DeviceBuffer y = make(kRows * width * 4);
    const shader::RmsNormArgs args{.x = x_buffer.address(),
                                   .factor = factor_buffer.address(),
                                   .y = y.address(),
                                   .width = width,
                                   .x_stride = stride,
                                   .y_stride = width,
                                   .eps = 1e-6F};
    const VulkanKernel& norm = kernel("rms_norm", {128});
    CommandList list(device());
    list.dispatch(norm, args, {kRows, 1, 1});
    run(list);
    const std::vector<float> got = get<float>(y, kRows * width);
    for (std::uint32_t r = 0; r < kRows; ++r) {
      std::vector<float> want(width);
      rms_norm(compute, x.data() + r * stride, factor, 1e-6F, 1, width, want.data());
      EXPECT_LT(relative_error(part(got, r * width, width), want), 1e-6) << width << " " << r;
    }
  }
}

class ArgmaxTest : public VulkanTest {
 protected:
  static std::vector<shader::Largest> largest(const std::vector<float>& logits, std::uint32_t rows,
                                              std::uint32_t width, std::uint32_t parts,
                                              std::uint32_t limit) {
    const DeviceBuffer values = put(logits);
    const DeviceBuffer found = make(rows * parts * sizeof(shader::Largest));
    const DeviceBuffer best = make(rows * sizeof(shader::Largest));
    const DeviceBuffer arrived = put(std::vector<std::uint32_t>(rows, 0));
    const shader::ArgmaxArgs args{.logits = values.address(),
                                  .found = found.address(),
                                  .best = best.address(),
                                  .arrived = arrived.address(),
                                  .width = width,
                                  .limit = limit,
                                  .stride = width,
                                  .parts = parts};
    const VulkanKernel& argmax = kernel("argmax", {64});
    CommandList list(device());
    list.dispatch(argmax, args, {parts, rows, 1});
    run(list);
    EXPECT_EQ(get<std::uint32_t>(arrived, rows), std::vector<std::uint32_t>(rows, 0));
    return get<shader::Largest>(best, rows);
  }
};

TEST_F(ArgmaxTest, TiesGoToTheLowerIdAndWhatIsNotFiniteIsTold) {
  constexpr std::uint32_t kWidth = 5001;
  std::vector<float> logits = random_values(5 * kWidth, 1.0F, 12);
  const auto at = [&](std::uint32_t row, std::uint32_t id) -> float& {
    return logits[row * kWidth + id];
  };
  at(0, 4999) = at(0, 77) = at(0, 2100) = 9.0F;
  at(1, kWidth - 1) = 20.0F;
  at(2, 3) = std::nanf("");
  at(2, 1234) = 8.0F;
  at(3, 9) = -kInfinity;
  at(3, 0) = 7.0F;
  for (std::uint32_t i = 0; i < kWidth; ++i) at(4, i) = std::nanf("");
  for (const std::uint32_t parts : {1U, 7U, 64U}) {
    const std::vector<shader::Largest> got = largest(logits, 5, kWidth, parts, kWidth);
    const std::uint32_t ids[] = {77, kWidth - 1, 1234, 0, 0};
    const std::uint32_t not_finite[] = {0, 0, 1, 1, 1};
    const float values[] = {9.0F, 20.0F, 8.0F, 7.0F};
    for (std::size_t r = 0; r < 5; ++r) {
      EXPECT_EQ(got[r].id, ids[r]) << r;
      EXPECT_EQ(got[r].not_finite, not_finite[r]) << r;
      if (r < std::size(values)) {
        EXPECT_EQ(got[r].value, values[r]) << r;
      }
    }
  }
  EXPECT_EQ(largest({-kInfinity, -2.0F, -3.0F}, 1, 3, 4, 3)[0].id, 1U);
  const shader::Largest limited = largest({1.0F, 2.0F, 3.0F, std::nanf("")}, 1, 4, 2, 2)[0];
  EXPECT_EQ(limited.id, 1U);
  EXPECT_EQ(limited.not_finite, 1U);
}

}  // namespace
}  // namespace moepack::route_kernels_test
