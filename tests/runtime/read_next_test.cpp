// With one thread the order of products is known, so each is told exactly where the next one's
// codes begin, which the kernel asks for while it multiplies its last rows.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cpu/codes_reference.h"
#include "runtime/model/compute.h"
#include "runtime/model/expert_tasks.h"
#include "runtime/model/kernels.h"
#include "tests/support/random_values.h"
#include "tests/support/test_matrix.h"

namespace moepack::read_next_test {
namespace {

using test::TestMatrix;
using test::Values;

constexpr std::uint64_t kHidden = 2048;
constexpr std::uint64_t kWidth = 512;

struct Call {
  const std::byte* codes;
  const std::byte* read_next;
};

// CodeKernels are plain functions.
std::vector<Call>& calls() {
  static std::vector<Call> list;
  return list;
}

void record(const CodeProduct& product) {
  calls().push_back({codes_at(product.w, product.row_begin), product.read_next});
  reference_code_kernels().multiply(product);
}

Kernels recording_kernels() {
  Kernels kernels = reference_kernels();
  kernels.codes = reference_code_kernels();
  kernels.codes.multiply = record;
  return kernels;
}

// `count` calls of which each is told of the one behind it, and the last of nothing.
void expect_known(std::size_t count) {
  ASSERT_EQ(calls().size(), count);
  for (std::size_t i = 0; i + 1 < count; ++i) {
    EXPECT_EQ(calls()[i].read_next, calls()[i + 1].codes) << i;
  }
  EXPECT_EQ(calls().back().read_next, nullptr);
}

class ReadNext : public testing::Test {
 protected:
  void SetUp() override { calls().clear(); }

  static TestMatrix matrix(std::uint64_t rows, std::uint64_t cols, std::uint32_t seed) {
    return {WeightFormat{.id = QFormatId::kQ40}, rows, cols, Values::kUsual, 0, seed};
  }

  Kernels kernels_ = recording_kernels();
  std::vector<float> floats_ = std::vector<float>(matmul_scratch_floats(kHidden));
  std::vector<InputBlock> blocks_ = std::vector<InputBlock>(input_blocks(kHidden, 2));
  std::vector<const InputBlock*> rows_ = std::vector<const InputBlock*>(1);
  Compute compute_{kernels_, 1, floats_, {blocks_, rows_, 2}};
  std::vector<float> x_ = test::random_values(kHidden, 5);
};

TEST_F(ReadNext, IsTheNextTaskOfMatricesTogether) {
  const TestMatrix first = matrix(640, kHidden, 1);
  const TestMatrix second = matrix(80, kHidden, 2);
  const QMatrixView views[] = {first.view(), second.view()};
  std::vector<float> y(640 + 80);
  const Product products[] = {{&views[0], y.data()}, {&views[1], y.data() + 640}};
  compute_.products(products, x_.data(), 1);
  ASSERT_GT(calls().size(), 2U);
  expect_known(calls().size());
}

TEST_F(ReadNext, GoesFromGatesToUpsAndOnToOutputsOfAllExperts) {
  constexpr std::size_t kExperts = 3;
  std::vector<TestMatrix> matrices;
  for (std::uint32_t i = 0; i < 2 * kExperts; ++i) matrices.push_back(matrix(kWidth, kHidden, i));
  for (std::uint32_t i = 0; i < kExperts; ++i) matrices.push_back(matrix(kHidden, kWidth, i));
  std::vector<float> values(kExperts * (2 * kWidth + kHidden));
  std::vector<InputBlock> blocks(kExperts * input_blocks(kWidth, 2));
  std::vector<const InputBlock*> rows(kExperts);
  ExpertTasks tasks;
  const RowInputs x = compute_.quantize(x_.data(), kHidden, 1);
  for (std::size_t e = 0; e < kExperts; ++e) {
    float* const to = values.data() + e * (2 * kWidth + kHidden);
    tasks.add({.gate = matrices[2 * e].view(),
               .up = matrices[2 * e + 1].view(),
               .down = matrices[2 * kExperts + e].view(),
               .tokens = 1,
               .x = x,
               .activated = to,
               .raised = to + kWidth,
               .result = to + 2 * kWidth,
               .activated_blocks = blocks.data() + e * input_blocks(kWidth, 2),
               .activated_rows = rows.data() + e});
  }
  tasks.activate(compute_);
  const std::size_t activated = calls().size();
  EXPECT_GT(activated, 2 * kExperts);
  tasks.project_together(compute_, [](std::size_t, std::size_t) {});
  EXPECT_GT(calls().size(), activated + kExperts);
  expect_known(calls().size());
}

}  // namespace
}  // namespace moepack::read_next_test
