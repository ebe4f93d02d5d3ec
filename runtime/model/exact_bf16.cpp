#include "runtime/model/exact_bf16.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

namespace moepack {
namespace {

constexpr std::size_t kCheckedAtOnce = std::size_t{256} << 10;

// What visit_tensors() shows: matrices of float32 are noted.
struct FloatMatrices {
  std::vector<QMatrixView*>* list;

  void operator()(QMatrixView& matrix) const {
    if (matrix.codes() != nullptr && matrix.format.id == QFormatId::kF32) list->push_back(&matrix);
  }
  void operator()(const std::vector<float>& /*vector*/) const {}
};

bool is_exact(const std::byte* values, std::size_t count) {
  std::uint32_t lost = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
    lost |= bits & 0xffffU;
  }
  return lost == 0;
}

bool is_exact(const QMatrixView& matrix, ThreadPool& pool) {
  std::atomic<bool> exact{true};
  pool.parallel_for(matrix.rows * matrix.cols, kCheckedAtOnce,
                    [&](std::size_t begin, std::size_t end, std::size_t) {
                      const std::byte* values = matrix.codes() + begin * sizeof(float);
                      if (exact && !is_exact(values, end - begin)) exact = false;
                    });
  return exact;
}

// A value goes to where one before it was, so they move in order.
void narrow(const QMatrixView& matrix) {
  // The bytes are of ModelWeights::data, which the caller may change.
  auto* bytes = const_cast<std::byte*>(matrix.codes());
  const std::size_t count = matrix.rows * matrix.cols;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));
    const auto upper = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(bytes + i * sizeof(upper), &upper, sizeof(upper));
  }
}

}  // namespace

void narrow_exact_floats(ModelWeights& weights, ThreadPool& pool) {
  std::vector<QMatrixView*> matrices;
  for (LayerWeights& layer : weights.layers) visit_tensors(layer, FloatMatrices{&matrices});
  for (QMatrixView* matrix : matrices) {
    if (!is_exact(*matrix, pool)) continue;
    narrow(*matrix);
    matrix->format = {.id = QFormatId::kBf16};
  }
}

}  // namespace moepack
