// Products of many tokens at once and of many experts, and norms over values whose squares are
// beyond float32.
#include "runtime/model/compute.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "runtime/model/expert_tasks.h"
#include "runtime/model/finite.h"
#include "tests/support/test_matrix.h"

namespace moepack::compute_test {
namespace {

constexpr std::size_t kWidth = 48;

std::vector<float> some_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i) * 1.7F) + 0.01F;
  }
  return values;
}

std::vector<float> scaled(std::vector<float> values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

std::vector<float> normed(const std::vector<float>& x, float eps) {
  std::array<float, 64> scratch{};
  Compute compute(reference_kernels(), 1, scratch);
  const std::vector<float> factor = some_values(kWidth);
  std::vector<float> out(x.size());
  rms_norm(compute, x.data(), factor, eps, x.size() / kWidth, kWidth, out.data());
  return out;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 1e-6F * std::fabs(b[i]) + 1e-12F) << i;
  }
}

// Scratch for `threads` threads and `tokens` tokens of as many columns, with blocks of each
// thread's own or without.
struct TestScratch {
  TestScratch(std::size_t threads, std::size_t tokens, std::size_t cols)
      : floats(threads * matmul_scratch_floats(cols)),
        blocks(tokens * token_stride(cols, 2)),
        rows(tokens),
        own(threads * own_blocks(2)) {}
  InputScratch shared() { return {blocks, rows, 2}; }
  InputScratch with_own() { return {blocks, rows, 2, own}; }
  std::vector<float> floats;
  std::vector<InputBlock> blocks;
  std::vector<const InputBlock*> rows;
  std::vector<InputBlock> own;
};

// Tasks are parts of the rows and of the tokens; no place of the result is left out or put
// elsewhere, whatever the shapes leave over.
TEST(Products, ManyTokensGiveTheBitsOfEachAlone) {
  constexpr std::size_t kCols = 256;
  constexpr std::size_t kTokens = 301;
  constexpr std::size_t kThreads = 3;
  const Kernels& kernels = *cpu_kernels(detect_cpu_level()).value();
  TestScratch scratch(kThreads, kTokens, kCols);
  Compute compute(kernels, kThreads, scratch.floats, scratch.shared());
  const std::vector<float> x = some_values(kTokens * kCols);
  const auto matrix = [](QFormatId id, std::uint64_t count) {
    return test::TestMatrix({.id = id}, count, kCols, test::Values::kUsual, 0, 5);
  };
  const std::array matrices{matrix(QFormatId::kQ40, 1205), matrix(QFormatId::kF32, 7),
                            matrix(QFormatId::kQ6K, 40), matrix(QFormatId::kQ4K, 640)};
  std::vector<std::vector<float>> got;
  std::vector<Product> products;
  got.reserve(matrices.size());
  products.reserve(matrices.size());
  for (const test::TestMatrix& w : matrices) got.emplace_back(kTokens * w.view().rows, -1.0F);
  for (std::size_t m = 0; m < got.size(); ++m) {
    products.push_back({&matrices[m].view(), got[m].data()});
  }
  compute.products(products, x.data(), kTokens);
  for (std::size_t m = 0; m < got.size(); ++m) {
    const QMatrixView& w = matrices[m].view();
    std::vector<float> expected(w.rows);
    for (std::size_t t = 0; t < kTokens; ++t) {
      compute.matmul(w, x.data() + t * kCols, 1, expected.data());
      const auto of_token = std::span(got[m]).subspan(t * w.rows, w.rows);
      ASSERT_TRUE(std::ranges::equal(of_token, expected)) << "matrix " << m << " token " << t;
    }
  }
}

// An expert of Q4_0 and Q4_K, and its memory for some tokens.
constexpr std::size_t kHidden = 256;
constexpr std::size_t kExpertWidth = 2048;
struct Expert {
  test::TestMatrix up{{.id = QFormatId::kQ40}, kExpertWidth, kHidden, test::Values::kUsual, 0, 5};
  test::TestMatrix gate{{.id = QFormatId::kQ40}, kExpertWidth, kHidden, test::Values::kUsual, 0, 7};
  test::TestMatrix down{{.id = QFormatId::kQ4K}, kHidden, kExpertWidth, test::Values::kUsual, 0, 6};
  std::vector<float> gate_bias = some_values(kExpertWidth);
  std::vector<float> down_bias = some_values(kHidden);
};
struct ExpertMemory {
  explicit ExpertMemory(std::size_t tokens)
      : activated(tokens * kExpertWidth),
        raised(tokens * kExpertWidth),
        result(tokens * kHidden, -1.0F),
        blocks(tokens * token_stride(kExpertWidth, 2)),
        rows(tokens) {}
  std::vector<float> activated;
  std::vector<float> raised;
  std::vector<float> result;
  std::vector<InputBlock> blocks;
  std::vector<const InputBlock*> rows;
};

// The result of each of `memory`, all computed together from the same inputs.
void run_experts(Compute& compute, const Expert& expert, const RowInputs& x, std::size_t tokens,
                 std::span<ExpertMemory> memory) {
  ExpertTasks tasks;
  for (ExpertMemory& m : memory) {
    tasks.add({.gate = expert.gate.view(),
               .up = expert.up.view(),
               .down = expert.down.view(),
               .tokens = tokens,
               .x = x,
               .gate_bias = expert.gate_bias.data(),
               .down_bias = expert.down_bias.data(),
               .activated = m.activated.data(),
               .raised = m.raised.data(),
               .result = m.result.data(),
               .activated_blocks = m.blocks.data(),
               .activated_rows = m.rows.data()});
  }
  tasks.activate(compute);
  tasks.project(compute);
}

// Experts beside so many others that tasks are larger (product_tasks_test), and of so many tokens
// that tasks take a part of them: each token's result is the one it has alone.
TEST(ExpertTasks, EveryTokenHasTheBitsItHasAlone) {
  const Kernels& kernels = *cpu_kernels(detect_cpu_level()).value();
  const Expert expert;
  for (const auto& [tokens, experts] : {std::pair<std::size_t, std::size_t>{20, 8}, {301, 1}}) {
    TestScratch scratch(3, tokens, kExpertWidth);
    Compute compute(kernels, 3, scratch.floats, scratch.shared());
    const std::vector<float> x = some_values(tokens * kHidden);
    const RowInputs inputs = compute.quantize(x.data(), kHidden, tokens);
    std::vector<ExpertMemory> together(experts, ExpertMemory(tokens));
    run_experts(compute, expert, inputs, tokens, together);
    std::vector<ExpertMemory> alone(1, ExpertMemory(1));
    for (std::size_t t = 0; t < tokens; ++t) {
      run_experts(compute, expert, inputs.from(t, kHidden), 1, alone);
      for (const ExpertMemory& m : together) {
        const auto result = std::span(m.result).subspan(t * kHidden, kHidden);
        ASSERT_TRUE(std::ranges::equal(result, alone[0].result))
            << tokens << " tokens, token " << t;
      }
    }
  }
}

// Inputs of few tokens are quantized by each thread, those of more by all together: nobody sees it,
// call after call with other inputs and other matrices.
TEST(OwnInputs, GiveTheBitsOfSharedOnes) {
  constexpr std::size_t kThreads = 3;
  constexpr std::size_t kMostTokens = 6;
  const Kernels& kernels = *cpu_kernels(detect_cpu_level()).value();
  for (const std::uint64_t cols : {256U, 2048U, 4096U, 8448U}) {
    TestScratch scratch(kThreads, kMostTokens, cols);
    TestScratch own_scratch(kThreads, kMostTokens, cols);
    Compute shared(kernels, kThreads, scratch.floats, scratch.shared());
    Compute own(kernels, kThreads, own_scratch.floats, own_scratch.with_own());
    const std::vector<float> values = some_values((kMostTokens + 8) * cols);
    for (std::size_t call = 0; call < 8; ++call) {
      for (std::size_t tokens = 1; tokens <= kMostTokens; ++tokens) {
        const float* const x = values.data() + call * cols;
        const bool are_few = tokens <= kMostOwnTokens && tokens * cols <= kMostOwnValues;
        EXPECT_EQ(own.quantize(x, cols, tokens).is_deferred, are_few && own.pool().size() > 1);
        const test::TestMatrix w({.id = QFormatId::kQ40}, 96 + 16 * call, cols,
                                 test::Values::kUsual, 0, 5);
        std::vector<float> expected(tokens * w.view().rows);
        std::vector<float> got(expected.size(), -1.0F);
        shared.matmul(w.view(), x, tokens, expected.data());
        own.matmul(w.view(), x, tokens, got.data());
        ASSERT_EQ(got, expected) << cols << " columns, " << tokens << " tokens, call " << call;
      }
    }
  }
}

TEST(OwnInputs, AreThoseOfExperts) {
  constexpr std::size_t kTokens = 3;
  const Kernels& kernels = *cpu_kernels(detect_cpu_level()).value();
  const Expert expert;
  TestScratch scratch(3, kTokens, kExpertWidth);
  TestScratch own_scratch(3, kTokens, kExpertWidth);
  Compute shared(kernels, 3, scratch.floats, scratch.shared());
  Compute own(kernels, 3, own_scratch.floats, own_scratch.with_own());
  const std::vector<float> x = some_values(kTokens * kHidden);
  std::vector<ExpertMemory> expected(2, ExpertMemory(kTokens));
  std::vector<ExpertMemory> got(2, ExpertMemory(kTokens));
  run_experts(shared, expert, shared.quantize(x.data(), kHidden, kTokens), kTokens, expected);
  run_experts(own, expert, own.quantize(x.data(), kHidden, kTokens), kTokens, got);
  for (std::size_t e = 0; e < expected.size(); ++e) EXPECT_EQ(got[e].result, expected[e].result);
  // Rows of some tokens, as an expert has them that others do not use.
  std::vector<ExpertMemory> alone(1, ExpertMemory(1));
  const RowInputs inputs = own.quantize(x.data(), kHidden, kTokens);
  for (std::size_t t = 0; t < kTokens; ++t) {
    run_experts(own, expert, inputs.from(t, kHidden), 1, alone);
    const auto of_token = std::span(expected[0].result).subspan(t * kHidden, kHidden);
    EXPECT_TRUE(std::ranges::equal(of_token, alone[0].result)) << t;
  }
}

TEST(RmsNorm, LargeValuesAreNormedAsSmallOnesAre) {
  const std::vector<float> x = some_values(kWidth);
  for (const float scale : {1e19F, 1e25F, 3e38F}) {
    expect_near(normed(scaled(x, scale), 1e-6F), normed(x, 0.0F));
  }
}

// A row of large values among others: theirs keep every bit.
TEST(RmsNorm, OtherRowsKeepTheirBits) {
  std::vector<float> x = some_values(3 * kWidth);
  const std::vector<float> before = normed(x, 1e-6F);
  for (std::size_t i = 0; i < kWidth; ++i) x[kWidth + i] *= 1e30F;
  const std::vector<float> after = normed(x, 1e-6F);
  for (std::size_t i = 0; i < 3 * kWidth; ++i) {
    if (i / kWidth != 1) {
      EXPECT_EQ(after[i], before[i]) << i;
    }
  }
  EXPECT_TRUE(all_finite(after));
}

TEST(RmsNorm, WhatIsNotFiniteStaysSo) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = some_values(kWidth);
    x[7] = bad;
    EXPECT_FALSE(all_finite(normed(x, 1e-6F)));
  }
}

TEST(L2Norm, LargeValuesAreNormedAsSmallOnesAre) {
  std::vector<float> small = some_values(kWidth);
  l2_norm(reference_kernels(), 0.0F, 0.25F, kWidth, small.data());
  for (const float scale : {1e19F, 3e38F}) {
    std::vector<float> large = scaled(some_values(kWidth), scale);
    l2_norm(reference_kernels(), 1e-6F, 0.25F, kWidth, large.data());
    expect_near(large, small);
  }
  std::vector<float> bad = some_values(kWidth);
  bad[0] = std::numeric_limits<float>::infinity();
  l2_norm(reference_kernels(), 1e-6F, 1.0F, kWidth, bad.data());
  EXPECT_FALSE(all_finite(bad));
}

}  // namespace
}  // namespace moepack::compute_test
