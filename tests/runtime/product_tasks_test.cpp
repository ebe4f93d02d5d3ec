// Tasks of products: a partition of every result, in pieces worth having.
#include "runtime/model/product_tasks.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace moepack::product_tasks_test {
namespace {

constexpr std::array<std::uint64_t, 12> kRows{1,   7,    16,   40,   127,   512,
                                              768, 2048, 2880, 8192, 14336, 151936};
constexpr std::array<std::uint64_t, 5> kCols{32, 512, 2048, 4096, 16384};
constexpr std::array<std::size_t, 11> kTokens{1, 2, 16, 64, 128, 255, 256, 301, 512, 2143, 4033};
constexpr std::array<std::size_t, 6> kThreads{1, 2, 3, 8, 16, 96};

// Each of the shapes, with quantized inputs and without, in a region of its own.
template <class Check>
void for_each_shape(const Check& check) {
  for (const std::uint64_t rows : kRows) {
    for (const std::uint64_t cols : kCols) {
      for (const std::size_t tokens : kTokens) {
        for (const std::size_t threads : kThreads) {
          for (const bool takes_blocks : {false, true}) {
            SCOPED_TRACE(::testing::Message() << rows << " x " << cols << ", " << tokens
                                              << " tokens, " << threads << " threads");
            check(ProductShape{rows, cols, tokens, takes_blocks, kCodeRows, threads, 0});
          }
        }
      }
    }
  }
}

ProductShape in_region(ProductShape shape, std::uint64_t work) {
  shape.region_work = work;
  return shape;
}

// Tasks go through the rows for one part of the tokens after the other, without gap or overlap.
void expect_partition(const ProductShape& shape) {
  const ProductTasks tasks(shape);
  std::uint64_t row = 0;
  std::size_t token = 0;
  for (std::size_t i = 0; i < tasks.count(); ++i) {
    const ProductTask task = tasks.at(i);
    ASSERT_EQ(task.row_begin, row);
    ASSERT_EQ(task.token_begin, token);
    ASSERT_LT(task.row_begin, task.row_end);
    ASSERT_LT(task.token_begin, task.token_end);
    row = task.row_end;
    if (row < shape.rows) {
      ASSERT_EQ(row % shape.row_unit, 0U);
      continue;
    }
    ASSERT_EQ(row, shape.rows);
    row = 0;
    token = task.token_end;
  }
  ASSERT_EQ(row, 0U);
  ASSERT_EQ(token, shape.tokens);
}

TEST(ProductTasks, AreAPartition) {
  for_each_shape([](ProductShape shape) {
    expect_partition(shape);
    expect_partition(in_region(shape, std::uint64_t{1} << 50));
    shape.row_unit = 2 * kCodeRows;
    expect_partition(shape);
  });
}

TEST(ProductTasks, NothingHasNoTasks) {
  EXPECT_EQ(ProductTasks({.rows = 0, .cols = 64, .tokens = 3}).count(), 0U);
  EXPECT_EQ(ProductTasks({.rows = 64, .cols = 64, .tokens = 0}).count(), 0U);
}

// A matrix beside much other work is never cut finer than by itself.
TEST(ProductTasks, PlentyOfWorkMakesNoTaskSmaller) {
  for_each_shape([](const ProductShape& shape) {
    const ProductTask alone = ProductTasks(shape).at(0);
    const ProductTask beside = ProductTasks(in_region(shape, std::uint64_t{1} << 50)).at(0);
    EXPECT_GE(beside.row_end, alone.row_end);
    EXPECT_EQ(beside.token_end, alone.token_end);
  });
  const ProductShape expert{2048, 256, 20, true, kCodeRows, 2, 0};
  EXPECT_GT(ProductTasks(in_region(expert, std::uint64_t{84} << 20)).at(0).row_end,
            ProductTasks(in_region(expert, std::uint64_t{10} << 20)).at(0).row_end);
}

// Parts of many tokens fill what kernels take at once, all of them: a short one would unpack the
// weights for few.
TEST(ProductTasks, PartsOfTokensAreLarge) {
  for (std::size_t tokens = 256; tokens < 5000; ++tokens) {
    const ProductTasks tasks({512, 2048, tokens, true, kCodeRows, 4, 0});
    for (std::size_t i = 0; i < tasks.count(); ++i) {
      ASSERT_LE(tasks.at(i).tokens(), kPanelTokens) << tokens;
      ASSERT_GE(tasks.at(i).tokens(), kPanelTokens * 3 / 4) << tokens;
    }
  }
}

// Every thread gets something where there is enough.
TEST(ProductTasks, NoThreadIsLeftOut) {
  for_each_shape([](const ProductShape& shape) {
    if (shape.rows < kCodeRows * shape.threads * 2) return;
    if (shape.rows * shape.cols * shape.tokens < (std::uint64_t{1} << 20) * shape.threads) return;
    EXPECT_GE(ProductTasks(shape).count() * 2, shape.threads);
  });
}

// Of a matrix with rows and work for it each thread gets several: who is done takes from who is
// not.
TEST(ProductTasks, EachThreadGetsSeveral) {
  for_each_shape([](const ProductShape& shape) {
    const std::uint64_t work = shape.rows * shape.cols * shape.tokens;
    if (shape.tokens >= 256 || shape.rows < 256 * shape.threads) return;
    if (work < (std::uint64_t{1} << 19) * shape.threads) return;
    EXPECT_GE(ProductTasks(shape).count(), 4 * shape.threads);
  });
}

// Experts are cut by the work of all, so that two threads get few large tasks and sixteen small
// ones.
TEST(ProductTasks, ExpertsAreCutByTheWorkOfAll) {
  const auto rows_with = [](std::size_t threads) {
    const ProductShape expert{512, 2048, 1, true, kInputGroup, threads, 0};
    return ProductTasks(in_region(expert, std::uint64_t{9} << 20)).at(0).row_end;
  };
  EXPECT_EQ(rows_with(2), 256U);
  EXPECT_EQ(rows_with(16), 32U);
}

}  // namespace
}  // namespace moepack::product_tasks_test
