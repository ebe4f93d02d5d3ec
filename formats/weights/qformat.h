// The weight formats: one table, and the sizes that follow from it. Adding a format is a row here,
// its definition in formats/weights/qcodec.cpp (blocks: formats/weights/ggml_blocks.cpp) and
// kernels; nothing else knows sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/dtype.h"
#include "formats/weights/component.h"
#include "formats/weights/qformat_defs.h"

namespace moepack {

// Of ggml's types the names lose their underscores: kQ40 is Q4_0, kQ4K is Q4_K.
enum class QFormatId : std::uint8_t {  // never renumber
  kF32 = MOE_QFORMAT_F32,
  kF16 = MOE_QFORMAT_F16,
  kBf16 = MOE_QFORMAT_BF16,
  kQ2 = MOE_QFORMAT_Q2,
  kQ3 = MOE_QFORMAT_Q3,
  kQ4 = MOE_QFORMAT_Q4,
  kQ5 = MOE_QFORMAT_Q5,
  kQ6 = MOE_QFORMAT_Q6,
  kQ8 = MOE_QFORMAT_Q8,
  kQ40 = MOE_QFORMAT_Q4_0,
  kQ41 = MOE_QFORMAT_Q4_1,
  kQ50 = MOE_QFORMAT_Q5_0,
  kQ51 = MOE_QFORMAT_Q5_1,
  kQ80 = MOE_QFORMAT_Q8_0,
  kQ2K = MOE_QFORMAT_Q2_K,
  kQ3K = MOE_QFORMAT_Q3_K,
  kQ4K = MOE_QFORMAT_Q4_K,
  kQ5K = MOE_QFORMAT_Q5_K,
  kQ6K = MOE_QFORMAT_Q6_K,
  kIq2Xxs = MOE_QFORMAT_IQ2_XXS,
  kIq2Xs = MOE_QFORMAT_IQ2_XS,
  kIq3Xxs = MOE_QFORMAT_IQ3_XXS,
  kIq1S = MOE_QFORMAT_IQ1_S,
  kIq4Nl = MOE_QFORMAT_IQ4_NL,
  kIq3S = MOE_QFORMAT_IQ3_S,
  kIq2S = MOE_QFORMAT_IQ2_S,
  kIq4Xs = MOE_QFORMAT_IQ4_XS,
  kIq1M = MOE_QFORMAT_IQ1_M,
  kTq10 = MOE_QFORMAT_TQ1_0,
  kTq20 = MOE_QFORMAT_TQ2_0,
  kMxfp4 = MOE_QFORMAT_MXFP4,
  kNvfp4 = MOE_QFORMAT_NVFP4,
  kQ10 = MOE_QFORMAT_Q1_0,
  kQ20 = MOE_QFORMAT_Q2_0,
  kF8E4M3 = MOE_QFORMAT_F8_E4M3,
  kMxfp8 = MOE_QFORMAT_MXFP8,
  kNvfp4Scaled = MOE_QFORMAT_NVFP4_SCALED,
};

enum class QKind : std::uint8_t {
  kPlain,   // one float after another
  kAffine,  // packed codes, and scales and biases in arrays of their own
  kBlock,   // ggml's blocks and a few of our own: consecutive inputs of a row with their scales
            // (formats/weights/ggml_blocks.h)
};

struct QFormatInfo {
  QFormatId id;
  std::string_view name;  // as in manifests and on the command line: "bf16", "q4"
  QKind kind;
  std::uint32_t bits;              // of one stored element or code; 0 for blocks
  DType storage;                   // how a manifest calls the codes: BF16, U32, U8 …
  std::uint32_t block_values = 0;  // weights in a block; 0: not a block format
  std::uint32_t block_bytes = 0;
};

// All rows, in order of id.
std::span<const QFormatInfo> qformats();
const QFormatInfo& qformat_info(QFormatId id);
std::optional<QFormatId> qformat_from_name(std::string_view name);
// The plain format of a float dtype; nullopt for other dtypes.
std::optional<QFormatId> plain_qformat(DType dtype);
// Affine format of a code width (2, 3, 4, 5, 6, 8); nullopt for other widths.
std::optional<QFormatId> affine_qformat(std::uint32_t bits);

// How rows lie in memory: formats/weights/row_order.h.
enum class RowOrder : std::uint8_t {
  kRows,    // one after the other
  kPanels,  // 16 side by side
};

// A format with its parameters: everything needed to decode a row, given its bytes.
struct WeightFormat {
  QFormatId id = QFormatId::kBf16;
  std::uint32_t group_size = 0;     // affine: 32, 64 or 128; else 0
  DType scale_type = DType::kBf16;  // affine: BF16 or F16, of scales and biases; else BF16
  RowOrder row_order = RowOrder::kRows;

  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

inline bool is_affine(const WeightFormat& format) {
  return qformat_info(format.id).kind == QKind::kAffine;
}
// Q2_K to Q6_K: blocks of 256 weights whose parts have quantized scales.
inline bool is_k_quant(const WeightFormat& format) {
  return format.id >= QFormatId::kQ2K && format.id <= QFormatId::kQ6K;
}
inline bool is_block(const WeightFormat& format) {
  return qformat_info(format.id).kind == QKind::kBlock;
}
// A block format of ggml's, which GGUF files know.
inline bool is_ggml_block(const WeightFormat& format) {
  return is_block(format) && static_cast<std::uint32_t>(format.id) < MOE_QFORMAT_FIRST_OWN;
}
inline bool is_valid_group_size(std::uint32_t group) {
  return group == 32 || group == 64 || group == 128;
}
// For people: "bf16", "q4 g64", "q4_k panels16".
std::string to_string(const WeightFormat& format);

// The components that a matrix of the format consists of, in the order of records. Every one of
// them has rows of equal size, one for each row of the matrix.
std::span<const Component> stored_components(const WeightFormat& format);
bool has_component(const WeightFormat& format, Component component);
// How a manifest calls the elements of such a component.
DType component_dtype(const WeightFormat& format, Component component);

// Bytes of the components of a [rows, cols] matrix; 0 for those that its format lacks.
struct MatrixBytes : Components<std::uint64_t> {
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (std::uint64_t bytes : values) sum += bytes;
    return sum;
  }

  friend bool operator==(const MatrixBytes&, const MatrixBytes&) = default;
};

// nullopt when the format cannot hold such a matrix (cols not a multiple of the group or of
// MOE_AFFINE_ROW_MULTIPLE, or of the block; a zero dimension) or a size overflows.
std::optional<MatrixBytes> matrix_bytes(const WeightFormat& format, std::uint64_t rows,
                                        std::uint64_t cols);

// A matrix in memory, y = W x with rows = outputs and cols = inputs. Borrowed: whoever made the
// view keeps the bytes alive. No alignment is promised (sources start at odd offsets). Sizes below
// are those of rows; in panels each component has the same bytes in another order.
//   codes: [rows, cols*bits/8] bytes, of blocks [rows, cols/block_values*block_bytes]; scales,
//   biases: [rows, cols/group_size] of scale_type; nullptr for components that the format lacks.
struct QMatrixView {
  WeightFormat format;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  Components<const std::byte*> data = {};

  const std::byte* codes() const { return data.codes(); }
  const std::byte* scales() const { return data[Component::kScales]; }
  const std::byte* biases() const { return data[Component::kBiases]; }
};

}  // namespace moepack
