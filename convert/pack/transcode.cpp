#include "convert/pack/transcode.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/weights/finite_weights.h"
#include "formats/weights/qcodec.h"
#include "quant/affine.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

// Reads rows [begin, end) of a component of `source`; nothing for an absent component.
Status read_component(const SourceMatrix& source, const TensorSlice& slice, std::uint64_t begin,
                      std::uint64_t end, std::span<std::byte> out) {
  if (!slice.tensor) return Status::ok();
  const std::uint64_t row_bytes = slice.bytes / source.rows;
  const std::uint64_t first = begin * row_bytes;
  const std::uint64_t size = (end - begin) * row_bytes;
  if (source.runs == nullptr) return slice.tensor.read(slice.begin + first, out.first(size));
  return RowGather(*source.runs, row_bytes)
      .for_each_piece(first, size, [&](std::uint64_t from, std::uint64_t at, std::uint64_t bytes) {
        return slice.tensor.read(from, out.subspan(at, bytes));
      });
}

// Without an early exit, so that compilers make it wide.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t found = 0;
  for (float value : values) {
    found |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
  }
  return found == 0;
}

std::span<std::byte> row_of(std::span<std::byte> all, std::uint64_t row_bytes, std::uint64_t row) {
  return all.subspan(row * row_bytes, row_bytes);
}

}  // namespace

Status Transcoder::read_rows(const SourceMatrix& source, std::uint64_t row_begin,
                             std::uint64_t row_end) {
  const std::uint64_t count = row_end - row_begin;
  weight_.resize(source.weight.bytes / source.rows * count);
  scales_.resize(source.scales.bytes / source.rows * count);
  biases_.resize(source.biases.bytes / source.rows * count);
  MOE_RETURN_IF_ERROR(read_component(source, source.weight, row_begin, row_end, weight_));
  MOE_RETURN_IF_ERROR(read_component(source, source.scales, row_begin, row_end, scales_));
  return read_component(source, source.biases, row_begin, row_end, biases_);
}

Status Transcoder::encode_row(const SourceMatrix& source, const WeightFormat& target,
                              std::uint64_t row, std::uint64_t out_row,
                              const MatrixSpans& out) const {
  if (!is_affine(target)) {
    assert(target.id == QFormatId::kBf16);  // all that ConvertOptions offers
    std::byte* at = row_of(out.weight, source.cols * 2, out_row).data();
    for (std::size_t i = 0; i < row_.size(); ++i) store_le(at + 2 * i, f32_to_bf16(row_[i]));
    return Status::ok();
  }
  if (!all_finite(row_)) {
    return corrupt(source.weight.tensor.where(),
                   "row " + std::to_string(row) + " holds a value that is not finite",
                   "such weights cannot be rounded; use the format of the source");
  }
  const MatrixBytes bytes = matrix_bytes(target, 1, source.cols).value_or(MatrixBytes{});
  encode_affine_row(target, row_,
                    AffineRowOut{.codes = row_of(out.weight, bytes.weight, out_row),
                                 .scales = row_of(out.scales, bytes.scales, out_row),
                                 .biases = row_of(out.biases, bytes.biases, out_row)});
  return Status::ok();
}

Status Transcoder::write_rows(const SourceMatrix& source, const WeightFormat& target,
                              std::uint64_t row_begin, std::uint64_t row_end,
                              const MatrixSpans& out) {
  if (source.format == target) {
    MOE_RETURN_IF_ERROR(read_component(source, source.weight, row_begin, row_end, out.weight));
    MOE_RETURN_IF_ERROR(read_component(source, source.scales, row_begin, row_end, out.scales));
    return read_component(source, source.biases, row_begin, row_end, out.biases);
  }
  row_.resize(source.cols);
  const std::uint64_t row_bytes = std::max<std::uint64_t>(1, source.bytes() / source.rows);
  const std::uint64_t block_rows = std::max<std::uint64_t>(1, kBlockBytes / row_bytes);
  for (std::uint64_t begin = row_begin; begin < row_end; begin += block_rows) {
    const std::uint64_t end = std::min(row_end, begin + block_rows);
    MOE_RETURN_IF_ERROR(read_rows(source, begin, end));
    const QMatrixView view{.format = source.format,
                           .rows = end - begin,
                           .cols = source.cols,
                           .weight = weight_.data(),
                           .scales = scales_.data(),
                           .biases = biases_.data()};
    for (std::uint64_t row = begin; row < end; ++row) {
      decode_row(view, row - begin, row_);
      MOE_RETURN_IF_ERROR(encode_row(source, target, row, row - row_begin, out));
    }
  }
  return Status::ok();
}

Status Transcoder::run(const SourceMatrix& source, const WeightFormat& target,
                       std::uint64_t row_begin, std::uint64_t row_end, const MatrixSpans& out) {
  MOE_RETURN_IF_ERROR(write_rows(source, target, row_begin, row_end, out));
  if (not_finite_ == nullptr) return Status::ok();
  if (!weights_are_finite(target, out.weight)) not_finite_->add(source.weight.tensor.name());
  for (const auto& [slice, values] :
       {std::pair(&source.scales, out.scales), std::pair(&source.biases, out.biases)}) {
    if (slice->tensor && !floats_are_finite(target.scale_type, values)) {
      not_finite_->add(slice->tensor.name());
    }
  }
  return Status::ok();
}

}  // namespace moepack
