#include "runtime/model/resident_panels.h"

#include <algorithm>
#include <cstring>
#include <variant>
#include <vector>

#include "formats/weights/row_order.h"

namespace moepack {
namespace {

constexpr std::size_t kPanelsPerTask = 4;

// What visit_tensors() shows: matrices are noted.
struct MatrixList {
  std::vector<QMatrixView*>* list;

  void operator()(QMatrixView& matrix) const { list->push_back(&matrix); }
  void operator()(const std::vector<float>& /*vector*/) const {}
};

// Of products; the output head last.
std::vector<QMatrixView*> matrices_of(ModelWeights& weights) {
  std::vector<QMatrixView*> out;
  for (LayerWeights& layer : weights.layers) {
    visit_tensors(layer, MatrixList{&out});
    // Of this one single rows are decoded, and products take some of its rows.
    auto* const latent = std::get_if<LatentAttentionWeights>(&layer.mixer);
    if (latent != nullptr) std::erase(out, &latent->kv_up);
  }
  out.push_back(&weights.lm_head);
  return out;
}

// A panel and the rows that it is made of take the same bytes. `rows`: room for a panel.
void move_panels(const QMatrixView& matrix, Component component, std::uint64_t row_bytes,
                 std::size_t begin, std::size_t end, std::vector<std::byte>& rows) {
  // The bytes are of ModelWeights::data, which the caller may change.
  auto* bytes = const_cast<std::byte*>(matrix.data[component]);
  const std::uint64_t panel = kPanelRows * row_bytes;
  for (std::size_t i = begin; i < end; ++i) {
    std::memcpy(rows.data(), bytes + i * panel, panel);
    rows_to_panels(matrix.format, component, kPanelRows, row_bytes, rows.data(), bytes + i * panel);
  }
}

void put_in_panels(const QMatrixView& matrix, ThreadPool& pool,
                   std::vector<std::vector<std::byte>>& rows) {
  const MatrixBytes bytes = *matrix_bytes(matrix.format, matrix.rows, matrix.cols);
  for (Component c : stored_components(matrix.format)) {
    pool.parallel_for(matrix.rows / kPanelRows, kPanelsPerTask,
                      [&](std::size_t begin, std::size_t end, std::size_t worker) {
                        move_panels(matrix, c, bytes[c] / matrix.rows, begin, end, rows[worker]);
                      });
  }
}

}  // namespace

void put_in_panels(ModelWeights& weights, const CodeKernels& codes, ThreadPool& pool) {
  const bool is_tied = weights.lm_head.codes() == weights.embedding.codes();
  std::vector<QMatrixView*> matrices = matrices_of(weights);
  std::erase_if(matrices, [&](const QMatrixView* matrix) {
    return matrix->codes() == nullptr || !codes.reads_panels(matrix->format);
  });
  std::uint64_t widest = 0;
  for (const QMatrixView* matrix : matrices) widest = std::max(widest, panel_bytes(*matrix));
  std::vector<std::vector<std::byte>> rows(pool.size(), std::vector<std::byte>(widest));
  for (QMatrixView* matrix : matrices) {
    put_in_panels(*matrix, pool, rows);
    matrix->format = in_order(matrix->format, RowOrder::kPanels);
  }
  if (is_tied) weights.embedding.format = weights.lm_head.format;
}

}  // namespace moepack
