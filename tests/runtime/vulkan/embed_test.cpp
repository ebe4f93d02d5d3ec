// Rows of embeddings of every format, to the bit.
#include <cmath>

#include "shaders/embed_args.h"

#include "tests/runtime/vulkan/weight_fixture.h"

namespace moepack::embed_test {
namespace {

using test::TestMatrix;
using test::Values;

class EmbedTest : public WeightTest {
 protected:
  static std::vector<float> embed(const QMatrixView& view, std::uint64_t shift,
                                  const std::vector<shader::BatchRow>& batch, std::uint32_t first,
                                  float scale = 1) {
    const StoredMatrix w = store(view, shift);
    const VulkanKernel& made =
        weight_kernel("embed", view.format, embed_constants(w.rows, 32, scale));
    const DeviceBuffer rows = put(batch);
    const std::size_t floats = batch.size() * view.cols;
    const DeviceBuffer hidden = put(std::vector<float>(floats, 7.0F));
    const DeviceBuffer row_error = put(std::vector<std::uint32_t>(batch.size(), 3));
    CommandList list(device());
    list.dispatch(made,
                  shader::EmbedArgs{.codes = w.address(Component::kCodes),
                                    .scales = w.address(Component::kScales),
                                    .biases = w.address(Component::kBiases),
                                    .rows = rows.address(),
                                    .hidden = hidden.address(),
                                    .tables = tables(),
                                    .row_error = row_error.address(),
                                    .first = first,
                                    .count = static_cast<std::uint32_t>(view.rows),
                                    .stride = static_cast<std::uint32_t>(view.cols)},
                  {2, static_cast<std::uint32_t>(batch.size()), 1});
    run(list);
    EXPECT_EQ(get<std::uint32_t>(row_error, batch.size()),
              std::vector<std::uint32_t>(batch.size(), ~0U));
    return get<float>(hidden, floats);
  }
};

std::vector<float> part_of(const std::vector<float>& values, std::size_t first, std::size_t count) {
  return {values.data() + first, values.data() + first + count};
}

TEST_F(EmbedTest, RowsAreDecodedToTheBit) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    const bool is_plain = qformat_info(format.id).kind == QKind::kPlain;
    const std::uint64_t cols = is_plain ? 45 : test::fitting_cols(format, 384);
    for (const Values values : {Values::kUsual, Values::kSubnormal, Values::kHuge}) {
      const TestMatrix matrix(format, 6, cols, values, 0, 21);
      const std::vector<shader::BatchRow> batch{{103, 0, 0, 1}, {100, 1, 0, 1}, {104, 2, 0, 1}};
      const std::vector<float> hidden = embed(matrix.view(), least_shift(format), batch, 100);
      for (std::size_t b = 0; b < batch.size(); ++b) {
        std::vector<float> row(cols);
        decode_row(matrix.view(), batch[b].token - 100, row);
        for (std::size_t i = 0; i < cols; ++i) {
          const double off = std::fabs(double{row[i]} - double{hidden[b * cols + i]});
          if (off < flush_bound(1, 1)) continue;
          ASSERT_EQ(row[i], hidden[b * cols + i])
              << name_of(format) << " values " << static_cast<int>(values) << " batch row " << b
              << " column " << i;
        }
      }
    }
  }
}

// The product is rounded once more, as the processor does.
TEST_F(EmbedTest, RowsAreScaledToTheBit) {
  const float scale = std::sqrt(2816.0F);
  for (const WeightFormat& format :
       {WeightFormat{.id = QFormatId::kBf16}, WeightFormat{.id = QFormatId::kQ4, .group_size = 32},
        WeightFormat{.id = QFormatId::kQ6K}}) {
    const std::uint64_t cols = test::fitting_cols(format, 96);
    const TestMatrix matrix(format, 3, cols, Values::kUsual, 0, 23);
    const std::vector<float> hidden =
        embed(matrix.view(), 0, {{2, 0, 0, 1}, {0, 1, 0, 1}}, 0, scale);
    for (std::size_t b = 0; b < 2; ++b) {
      std::vector<float> row(cols);
      decode_row(matrix.view(), b == 0 ? 2 : 0, row);
      for (float& x : row) x *= scale;
      EXPECT_EQ(part_of(hidden, b * cols, cols), row) << name_of(format);
    }
  }
}

TEST_F(EmbedTest, TokensOfAnotherPieceStayAsTheyAre) {
  const TestMatrix matrix({.id = QFormatId::kBf16}, 2, 8, Values::kUsual, 0, 22);
  const std::vector<shader::BatchRow> batch{{9, 0, 0, 1}, {12, 1, 0, 1}};
  const std::vector<float> hidden = embed(matrix.view(), 0, batch, 10);
  EXPECT_EQ(hidden, std::vector<float>(16, 7.0F));
}

}  // namespace
}  // namespace moepack::embed_test
