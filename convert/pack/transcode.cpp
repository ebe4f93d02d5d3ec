#include "convert/pack/transcode.h"

#include <algorithm>
#include <cassert>

#include "formats/base/bytes.h"
#include "formats/weights/finite_weights.h"
#include "formats/weights/qcodec.h"
#include "quant/affine.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

std::span<std::byte> row_of(std::span<std::byte> all, std::uint64_t row_bytes, std::uint64_t row) {
  return all.subspan(row * row_bytes, row_bytes);
}

}  // namespace

Status Transcoder::read_rows(const SourceMatrix& source, std::uint64_t row_begin,
                             std::uint64_t row_end) {
  const std::uint64_t count = row_end - row_begin;
  for (Component c : stored_components(source.format)) {
    parts_[c].resize(source.row_bytes(c) * count);
    MOE_RETURN_IF_ERROR(source.read_rows(c, row_begin, row_end, parts_[c]));
  }
  return Status::ok();
}

Status Transcoder::encode_row(const SourceMatrix& source, const WeightFormat& target,
                              std::uint64_t row, std::uint64_t out_row,
                              const MatrixSpans& out) const {
  if (target.id == QFormatId::kF32) {
    std::byte* at = row_of(out.codes(), source.cols * 4, out_row).data();
    for (std::size_t i = 0; i < row_.size(); ++i) store_le(at + 4 * i, row_[i]);
    return Status::ok();
  }
  if (!is_affine(target)) {
    assert(target.id == QFormatId::kBf16);  // all else that ConvertOptions offers
    std::byte* at = row_of(out.codes(), source.cols * 2, out_row).data();
    for (std::size_t i = 0; i < row_.size(); ++i) store_le(at + 2 * i, f32_to_bf16(row_[i]));
    return Status::ok();
  }
  if (!floats_are_finite(DType::kF32, std::as_bytes(std::span(row_)))) {
    return corrupt(source.slices.codes().tensor.where(),
                   "row " + std::to_string(row) + " holds a value that is not finite",
                   "such weights cannot be rounded; use the format of the source");
  }
  const MatrixBytes bytes = matrix_bytes(target, 1, source.cols).value_or(MatrixBytes{});
  const auto part = [&](Component c) { return row_of(out[c], bytes[c], out_row); };
  encode_affine_row(target, row_,
                    AffineRowOut{.codes = part(Component::kCodes),
                                 .scales = part(Component::kScales),
                                 .biases = part(Component::kBiases)});
  return Status::ok();
}

Status Transcoder::write_rows(const SourceMatrix& source, const WeightFormat& target,
                              std::uint64_t row_begin, std::uint64_t row_end,
                              const MatrixSpans& out) {
  if (source.format == target) {
    for (Component c : stored_components(target)) {
      MOE_RETURN_IF_ERROR(source.read_rows(c, row_begin, row_end, out[c]));
    }
    return Status::ok();
  }
  // From what the source means, not from codes that were repacked.
  if (source.encoded != nullptr && !source.is_decoded() && !source.encoded->encoding->only_moves) {
    return write_rows(decoded_matrix(source), target, row_begin, row_end, out);
  }
  row_.resize(source.cols);
  const std::uint64_t row_bytes = std::max<std::uint64_t>(1, source.bytes() / source.rows);
  const std::uint64_t block_rows = std::max<std::uint64_t>(1, kBlockBytes / row_bytes);
  for (std::uint64_t begin = row_begin; begin < row_end; begin += block_rows) {
    const std::uint64_t end = std::min(row_end, begin + block_rows);
    MOE_RETURN_IF_ERROR(read_rows(source, begin, end));
    QMatrixView view{.format = source.format, .rows = end - begin, .cols = source.cols};
    for (Component c : stored_components(source.format)) view.data[c] = parts_[c].data();
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
  for (Component c : stored_components(target)) {
    const bool is_finite = c == Component::kCodes ? weights_are_finite(target, out[c])
                                                  : floats_are_finite(target.scale_type, out[c]);
    if (is_finite) continue;
    const SourceTensor& own = source.slices[c].tensor;
    not_finite_->add((own ? own : source.slices.codes().tensor).name());
  }
  return Status::ok();
}

}  // namespace moepack
