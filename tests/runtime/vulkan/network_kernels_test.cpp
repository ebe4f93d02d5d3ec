// What stands around the experts of some families, against its definition in double: the join of
// branches between norms, norms that are added, gelu between projections, the cap on logits.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "shaders/cap_logits_args.h"
#include "shaders/expert_activation.h"
#include "shaders/join_network_args.h"
#include "shaders/rms_norm_args.h"
#include "shaders/route_args.h"
#include "shaders/swiglu_args.h"
#include "tests/runtime/vulkan/kernel_inputs.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"

namespace moepack::network_kernels_test {
namespace {

constexpr float kEps = 1e-6F;

std::vector<double> in_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}
std::vector<float> in_float(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// An absent factor leaves the row as it is.
std::vector<double> normed(std::vector<double> row, const std::vector<float>& factor) {
  if (factor.empty()) return row;
  double squares = 0;
  for (const double x : row) squares += x * x;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(row.size()) + double{kEps});
  for (std::size_t i = 0; i < row.size(); ++i) row[i] *= scale * factor[i];
  return row;
}

class JoinNetworkTest : public VulkanTest {
 protected:
  struct Case {
    std::uint32_t cols = 0;
    std::uint32_t routed = 0;  // slots
    bool has_shared = true;
    bool has_branch_norms = true;
    bool has_output_norm = true;
    bool has_scale = true;
    bool has_more = false;
    bool has_table = false;
    float size = 1;  // of the results

    std::uint32_t slots() const { return routed + (has_shared ? 1 : 0); }
  };
  static constexpr std::uint32_t kRows = 3;
  static constexpr std::uint32_t kRouted = 9;  // experts, of which the table lacks number 4

  struct Inputs {
    std::vector<shader::Choice> choices;
    std::vector<float> results, more, y;
    std::vector<float> routed_norm, shared_norm, output_norm, scale;
  };
  static Inputs make_inputs(const Case& c) {
    Inputs in;
    for (std::uint32_t b = 0; b < kRows; ++b) {
      for (std::uint32_t s = 0; s < c.slots(); ++s) {
        const std::uint32_t expert = s == c.routed ? kRouted : (b * 3 + s * 2) % kRouted;
        // The last row is of no slice.
        in.choices.push_back(
            {b + 1 == kRows ? MOE_NO_EXPERT : expert, 0.3F + 0.2F * static_cast<float>(s)});
      }
    }
    in.results = random_values(std::size_t{kRows} * c.slots() * c.cols, c.size, 21);
    in.more = random_values(std::size_t{kRows} * c.cols, c.size, 22);
    in.y = random_values(std::size_t{kRows} * c.cols, 1, 23);
    if (c.has_branch_norms) in.routed_norm = random_values(c.cols, 1, 24);
    if (c.has_branch_norms) in.shared_norm = random_values(c.cols, 1, 25);
    if (c.has_output_norm) in.output_norm = random_values(c.cols, 1, 26);
    if (c.has_scale) in.scale = {-0.7F};
    return in;
  }

  static std::vector<double> want_row(const Case& c, const Inputs& in, std::uint32_t b) {
    const auto result = [&](std::uint32_t slot) {
      return in_double(part(in.results, (b * c.slots() + slot) * c.cols, c.cols));
    };
    std::vector<double> sum(c.cols, 0);
    for (std::uint32_t s = 0; s < c.routed; ++s) {
      const shader::Choice& choice = in.choices[b * c.slots() + s];
      if (choice.expert == MOE_NO_EXPERT || (c.has_table && choice.expert == 4)) continue;
      const std::vector<double> one = result(s);
      for (std::uint32_t i = 0; i < c.cols; ++i) sum[i] += choice.weight * one[i];
    }
    for (std::uint32_t i = 0; c.has_more && i < c.cols; ++i) sum[i] += in.more[b * c.cols + i];
    sum = normed(sum, in.routed_norm);
    if (c.has_shared && in.choices[(b + 1) * c.slots() - 1].expert != MOE_NO_EXPERT) {
      const std::vector<double> shared = normed(result(c.routed), in.shared_norm);
      const double weight = in.choices[(b + 1) * c.slots() - 1].weight;
      for (std::uint32_t i = 0; i < c.cols; ++i) sum[i] += weight * shared[i];
    }
    sum = normed(sum, in.output_norm);
    const double scale = in.scale.empty() ? 1 : in.scale.front();
    for (std::uint32_t i = 0; i < c.cols; ++i) sum[i] = (in.y[b * c.cols + i] + sum[i]) * scale;
    return sum;
  }

  static std::vector<float> join(const Case& c, const Inputs& in) {
    std::vector<DeviceBuffer> kept;
    const auto keep = [&](const auto& values) -> std::uint64_t {
      if (values.empty()) return 0;
      kept.push_back(put(values));
      return kept.back().address();
    };
    std::vector<std::uint64_t> table(kRouted + 1, 256);
    table[4] = 0;
    const DeviceBuffer y = put(in.y);
    const DeviceBuffer work = put(std::vector<float>(in.y.size(), std::nanf("")));
    const shader::JoinNetworkArgs args{.records = c.has_table ? keep(table) : 0,
                                       .choices = keep(in.choices),
                                       .results = keep(in.results),
                                       .more = c.has_more ? keep(in.more) : 0,
                                       .routed_norm = keep(in.routed_norm),
                                       .shared_norm = keep(in.shared_norm),
                                       .output_norm = keep(in.output_norm),
                                       .scale = keep(in.scale),
                                       .work = work.address(),
                                       .y = y.address(),
                                       .experts = kRouted + 1,
                                       .routed = c.routed,
                                       .slots = c.slots(),
                                       .cols = c.cols,
                                       .eps = kEps};
    const VulkanKernel& made = kernel("join_network", {64});
    CommandList list(device());
    list.dispatch(made, args, {kRows, 1, 1});
    run(list);
    return get<float>(y, in.y.size());
  }
};

TEST_F(JoinNetworkTest, AgreesWithTheDefinition) {
  const Case cases[] = {
      {.cols = 2816, .routed = 8},
      {.cols = 33, .routed = 3, .has_more = true, .has_table = true},
      {.cols = 5, .routed = 1, .has_branch_norms = false, .has_scale = false},
      {.cols = 63, .routed = 2, .has_shared = false, .has_output_norm = false},
      {.cols = 65, .routed = 0, .has_branch_norms = false},
      {.cols = 100, .routed = 4, .has_branch_norms = false, .has_output_norm = false},
      {.cols = 100, .routed = 4, .size = 1e30F},  // squares beyond float32
  };
  for (const Case& c : cases) {
    const Inputs in = make_inputs(c);
    const std::vector<float> got = join(c, in);
    for (std::uint32_t b = 0; b < kRows; ++b) {
      EXPECT_LT(relative_error(part(got, b * c.cols, c.cols), in_float(want_row(c, in, b))), 2e-6)
          << c.cols << " row " << b;
    }
  }
}

class NetworkStepsTest : public VulkanTest {};

TEST_F(NetworkStepsTest, NormsAreAdded) {
  for (const std::uint32_t width : {1U, 33U, 2816U}) {
    constexpr std::uint32_t kRows = 3;
    const std::vector<float> x = random_values(kRows * width, 2, 31);
    const std::vector<float> factor = random_values(width, 1, 32);
    const std::vector<float> before = random_values(kRows * width, 1, 33);
    const DeviceBuffer from = put(x);
    const DeviceBuffer factors = put(factor);
    const DeviceBuffer y = put(before);
    const shader::RmsNormArgs args{.x = from.address(),
                                   .factor = factors.address(),
                                   .y = y.address(),
                                   .width = width,
                                   .x_stride = width,
                                   .y_stride = width,
                                   .eps = kEps};
    const VulkanKernel& norm = kernel("rms_norm", {64, 1});
    CommandList list(device());
    list.dispatch(norm, args, {kRows, 1, 1});
    run(list);
    std::vector<float> want;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      const auto row = normed(in_double(part(x, r * width, width)), factor);
      for (std::uint32_t i = 0; i < width; ++i) {
        want.push_back(static_cast<float>(before[r * width + i] + row[i]));
      }
    }
    EXPECT_LT(relative_error(get<float>(y, want.size()), want), 1e-6) << width;
  }
}

// Of every size: where gelu is nearly 0, nearly its input, and where cubes overflow.
TEST_F(NetworkStepsTest, GeluStandsBetweenProjections) {
  std::vector<float> gate = random_values(5003, 3, 41);
  const std::array<float, 8> ends{0.0F, -0.0F, 1e-30F, -1e-6F, 60.0F, -9.0F, 3e13F, -3e13F};
  std::copy(ends.begin(), ends.end(), gate.begin());
  const std::vector<float> up = random_values(gate.size(), 2, 42);
  const DeviceBuffer gates = put(gate);
  const DeviceBuffer ups = put(up);
  const auto count = static_cast<std::uint32_t>(gate.size());
  const shader::SwigluArgs args{
      .gate = gates.address(), .up = ups.address(), .act = gates.address(), .count = count};
  const VulkanKernel& made = kernel("swiglu", {64, MOE_ACTIVATION_GEGLU, 0});
  CommandList list(device());
  list.dispatch(made, args, {7, 1, 1});
  run(list);
  const std::vector<float> got = get<float>(gates, count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const double x = gate[i];
    const double z = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    // 0.5 (1 + tanh(z)), which would cancel.
    const double want = x / (1 + std::exp(-2 * z)) * up[i];
    const double bound = (1e-6 + 5e-7 * std::min(std::fabs(z), 90.0)) * std::fabs(want) + 1e-30;
    EXPECT_NEAR(static_cast<double>(got[i]), want, bound) << x;
  }
}

TEST_F(NetworkStepsTest, LogitsAreCapped) {
  for (const float cap : {30.0F, 4.0F, 0.05F}) {
    std::vector<float> logits = random_values(5003, 3 * cap, 51);
    const float infinity = std::numeric_limits<float>::infinity();
    const std::array<float, 9> ends{0.0F,         1e-20F, -1e-4F * cap, 0.625F * cap, 0.6249F * cap,
                                    -39.0F * cap, 1e30F,  infinity,     -infinity};
    std::copy(ends.begin(), ends.end(), logits.begin());
    logits[ends.size()] = std::nanf("");
    const DeviceBuffer buffer = put(logits);
    const auto count = static_cast<std::uint32_t>(logits.size());
    const shader::CapLogitsArgs args{.logits = buffer.address(), .count = count, .cap = cap};
    const VulkanKernel& made = kernel("cap_logits", {64});
    CommandList list(device());
    list.dispatch(made, args, {5, 1, 1});
    run(list);
    const std::vector<float> got = get<float>(buffer, count);
    EXPECT_TRUE(std::isnan(got[ends.size()]));
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i == ends.size()) continue;
      const double want = double{cap} * std::tanh(double{logits[i]} / double{cap});
      EXPECT_NEAR(static_cast<double>(got[i]), want, 4e-7 * std::fabs(want)) << logits[i];
    }
  }
}

}  // namespace
}  // namespace moepack::network_kernels_test
