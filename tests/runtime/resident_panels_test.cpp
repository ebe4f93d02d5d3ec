#include "runtime/model/resident_panels.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "formats/weights/row_order.h"
#include "runtime/model/kernels.h"
#include "tests/support/test_matrix.h"

namespace moepack::resident_panels_test {
namespace {

// A copy that may be changed, of the bytes behind a view.
QMatrixView owned_copy(const QMatrixView& from, std::vector<std::vector<std::byte>>& store) {
  QMatrixView copy = from;
  const MatrixBytes bytes = *matrix_bytes(from.format, from.rows, from.cols);
  for (Component c : stored_components(from.format)) {
    store.emplace_back(from.data[c], from.data[c] + bytes[c]);
    copy.data[c] = store.back().data();
  }
  return copy;
}

void expect_same_rows(const QMatrixView& got, const QMatrixView& expected) {
  std::vector<float> a(got.cols);
  std::vector<float> b(got.cols);
  for (std::uint64_t r = 0; r < got.rows; ++r) {
    decode_row(got, r, a);
    decode_row(expected, r, b);
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << "row " << r;
  }
}

class ResidentPanels : public testing::TestWithParam<bool> {};

TEST_P(ResidentPanels, KeepEveryValue) {
  const bool is_tied = GetParam();
  const CodeKernels& codes = cpu_kernels(detect_cpu_level()).value()->codes;
  const WeightFormat q4{.id = QFormatId::kQ4, .group_size = 64};
  const WeightFormat q6k{.id = QFormatId::kQ6K};
  const WeightFormat bf16{.id = QFormatId::kBf16};
  const test::TestMatrix q(q4, 37, 256, test::Values::kUsual, 0, 1);
  const test::TestMatrix head(q6k, 100, 256, test::Values::kUsual, 0, 2);
  const test::TestMatrix router(bf16, 16, 256, test::Values::kUsual, 0, 3);
  std::vector<std::vector<std::byte>> store;
  ModelWeights weights;
  weights.layers.resize(1);
  FullAttentionWeights mixer;
  for (QMatrixView* matrix : {&mixer.q, &mixer.k, &mixer.v, &mixer.o}) {
    *matrix = owned_copy(q.view(), store);
  }
  weights.layers[0].mixer = mixer;
  weights.layers[0].moe.router = owned_copy(router.view(), store);
  weights.lm_head = owned_copy(head.view(), store);
  weights.embedding = is_tied ? weights.lm_head : owned_copy(head.view(), store);
  ThreadPool pool(3);
  put_in_panels(weights, codes, pool);
  const auto& after = std::get<FullAttentionWeights>(weights.layers[0].mixer);
  for (const QMatrixView* matrix : {&after.q, &after.k, &after.v, &after.o}) {
    expect_same_rows(*matrix, q.view());
  }
  expect_same_rows(weights.lm_head, head.view());
  expect_same_rows(weights.embedding, head.view());
  expect_same_rows(weights.layers[0].moe.router, router.view());
  EXPECT_EQ(weights.layers[0].moe.router.format, bf16);
  EXPECT_EQ(weights.lm_head.format.row_order == RowOrder::kPanels, codes.reads_panels(q6k));
  EXPECT_EQ(weights.embedding.format.row_order == RowOrder::kPanels,
            is_tied && codes.reads_panels(q6k));
}

INSTANTIATE_TEST_SUITE_P(Heads, ResidentPanels, testing::Bool());

}  // namespace
}  // namespace moepack::resident_panels_test
