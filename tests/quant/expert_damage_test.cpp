// Compares what is told about an expert's losses with what they are when it is really quantized.
#include "quant/expert_damage.h"

#include <array>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/recorded_experts.h"

namespace moepack::expert_damage_test {
namespace {

constexpr std::array<std::uint32_t, 3> kBits{2, 3, 4};

struct Measured {
  LayerActivations activations = test::random_activations(6000);
  LayerInputs inputs{activations, test::kExperts};
  LayerHessian layer = layer_hessian(inputs, 6000, test::kSerial);
  ExpertMatrices expert = test::random_expert();

  ExpertDamage damage(std::uint32_t e, std::size_t rows, QuantMethod method) const {
    return expert_damage(expert, gate_up_statistics(inputs, layer, e),
                         down_problem(inputs, expert, expert.gate, expert.up, e),
                         {.method = method, .bits = kBits, .group_size = 32, .rows = rows});
  }

  // The mean squared error of the expert's output on its held-out tokens, all three matrices
  // quantized one after the other as a pack is.
  double real_error(std::uint32_t e, std::uint32_t bits, QuantMethod method) const {
    const MatrixFormat format{.bits = bits, .group_size = 32};
    const InputStatistics first = gate_up_statistics(inputs, layer, e);
    const auto stored = [&](const Matrix& w, const Matrix& target, std::size_t rows,
                            const InputStatistics& given) {
      const auto factor = factor_hessian(given.hessian, kGptqDamping);
      const QuantizedMatrix q =
          quantize_matrix(method, w, target, rows, format, given, factor ? &*factor : nullptr);
      Matrix out;
      stored_minus(q.values, w, out);
      return Matrix(out + w);
    };
    const Matrix gate = stored(expert.gate, expert.gate, test::kWidth, first);
    const Matrix up = stored(expert.up, expert.up, test::kWidth, first);
    const DownProblem problem = down_problem(inputs, expert, gate, up, e);
    const Matrix down = stored(expert.down, problem.target, test::kHidden, problem.inputs);
    Matrix given(down.rows(), problem.inputs.held_out.cols());
    multiply(down, problem.inputs.held_out, given);
    double weight = 0;
    for (const float w : problem.inputs.held_out_weights) weight += static_cast<double>(w);
    return static_cast<double>((given - problem.inputs.wanted).squaredNorm()) / weight;
  }
};

double total(const ExpertDamage& damage, std::size_t width) {
  return damage.error[0][width] + damage.error[1][width] + damage.error[2][width];
}

// The sum over the projections is the error of the whole expert, for methods that compensate and
// those that do not.
TEST(ExpertDamage, AddsUpToTheRealError) {
  const Measured m;
  for (const QuantMethod method : {QuantMethod::kGrid, QuantMethod::kGptq}) {
    for (const std::uint32_t e : {0U, 2U}) {
      const ExpertDamage damage = m.damage(e, 0, method);
      for (std::size_t k = 0; k < kBits.size(); ++k) {
        const double real = m.real_error(e, kBits[k], method);
        EXPECT_NEAR(total(damage, k) / real, 1, 0.2)
            << quant_method_name(method) << " expert " << e << " bits " << kBits[k];
      }
    }
  }
}

TEST(ExpertDamage, AFewRowsStandForAll) {
  const Measured m;
  const ExpertDamage all = m.damage(1, 0, QuantMethod::kGptq);
  const ExpertDamage some = m.damage(1, 32, QuantMethod::kGptq);
  EXPECT_DOUBLE_EQ(some.output, all.output);
  for (std::size_t p = 0; p < 3; ++p) {
    for (std::size_t k = 0; k < kBits.size(); ++k) {
      EXPECT_NEAR(some.error[p][k] / all.error[p][k], 1, 0.3) << p << " bits " << kBits[k];
    }
  }
}

// A hidden unit that makes up most of the output must not be missed.
TEST(ExpertDamage, ALoudHiddenUnitCounts) {
  Measured m;
  m.expert.down.col(7) *= 100;
  const ExpertDamage all = m.damage(1, 0, QuantMethod::kRtn);
  const ExpertDamage some = m.damage(1, 16, QuantMethod::kRtn);
  EXPECT_NEAR(some.error[0][0] / all.error[0][0], 1, 0.1);
}

TEST(ExpertDamage, FallsWithEveryBit) {
  const Measured m;
  const ExpertDamage damage = m.damage(3, 32, QuantMethod::kGptq);
  for (const auto& errors : damage.error) {
    ASSERT_EQ(errors.size(), kBits.size());
    for (std::size_t k = 1; k < errors.size(); ++k) {
      EXPECT_LT(errors[k], 0.5 * errors[k - 1]);
      EXPECT_GT(errors[k], 0.05 * errors[k - 1]);
    }
  }
}

// An expert that no token chose is judged by tokens of the others; zero weights lose nothing.
TEST(ExpertDamage, DegenerateExperts) {
  Measured m;
  const ExpertDamage unseen = m.damage(4, 32, QuantMethod::kGptq);
  EXPECT_GT(total(unseen, 0), 0);
  EXPECT_TRUE(std::isfinite(total(unseen, 0)));
  m.expert.down.setZero();
  const ExpertDamage silent = m.damage(0, 32, QuantMethod::kGptq);
  for (std::size_t k = 0; k < kBits.size(); ++k) EXPECT_EQ(total(silent, k), 0) << kBits[k];
  m.expert = test::random_expert();
  m.expert.gate.setZero();
  for (std::size_t k = 0; k < kBits.size(); ++k) {
    EXPECT_TRUE(std::isfinite(total(m.damage(0, 32, QuantMethod::kGptq), k)));
  }
}

}  // namespace
}  // namespace moepack::expert_damage_test
