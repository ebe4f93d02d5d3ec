#include "convert/source/stored_matrix.h"

#include <cassert>

#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

FileRange file_range(const SourceMatrix& source, const TensorSlice& slice) {
  if (!slice.tensor) return {};
  return {.file = &slice.tensor.file(),
          .offset = slice.tensor.offset() + slice.begin,
          .bytes = slice.bytes,
          .runs = source.runs,
          .row_bytes = slice.bytes / source.rows};
}

Status read_part(const FileRange& range, std::uint64_t begin, std::uint64_t bytes,
                 std::vector<std::byte>& out) {
  out.resize(bytes);
  if (bytes == 0) return Status::ok();
  return range.read(begin, out);
}

}  // namespace

Status FileRange::read(std::uint64_t begin, std::span<std::byte> out) const {
  if (runs == nullptr) return file->read_at(offset + begin, out);
  return RowGather(*runs, row_bytes)
      .for_each_piece(begin, out.size(),
                      [&](std::uint64_t from, std::uint64_t at, std::uint64_t size) {
                        return file->read_at(offset + from, out.subspan(at, size));
                      });
}

StoredMatrix stored_matrix(const SourceMatrix& source) {
  return {.format = source.format,
          .rows = source.rows,
          .cols = source.cols,
          .weight = file_range(source, source.weight),
          .scales = file_range(source, source.scales),
          .biases = file_range(source, source.biases)};
}

StoredMatrix stored_matrix(const ProjectionLayout& part, const File& file, std::uint64_t offset) {
  return {.format = part.format,
          .rows = part.rows,
          .cols = part.cols,
          .weight = {.file = &file, .offset = offset + part.offset, .bytes = part.bytes.weight},
          .scales = {.file = &file,
                     .offset = offset + part.scales_offset(),
                     .bytes = part.bytes.scales},
          .biases = {
              .file = &file, .offset = offset + part.biases_offset(), .bytes = part.bytes.biases}};
}

std::uint64_t weight_byte(const WeightFormat& format, std::uint64_t index) {
  const QFormatInfo& info = qformat_info(format.id);
  if (info.kind == QKind::kBlock) return index / info.block_values * info.block_bytes;
  // Multiples of eight first, as the product of a large index and the bits might overflow.
  return index / 8 * info.bits + index % 8 * info.bits / 8;
}

Result<DecodedBlock> BlockDecoder::decode(const StoredMatrix& matrix, std::uint64_t begin,
                                          std::uint64_t count) {
  assert(count > 0 && count <= kDecodeBlock);
  assert(begin + count <= matrix.elements());
  const std::uint64_t first = weight_byte(matrix.format, begin);
  MOE_RETURN_IF_ERROR(
      read_part(matrix.weight, first, weight_byte(matrix.format, begin + count) - first, weight_));
  if (is_affine(matrix.format)) {
    const std::uint64_t group = matrix.format.group_size;
    const std::uint64_t scale_bytes = dtype_bits(matrix.format.scale_type) / 8;
    const std::uint64_t at = begin / group * scale_bytes;
    const std::uint64_t bytes = count / group * scale_bytes;
    MOE_RETURN_IF_ERROR(read_part(matrix.scales, at, bytes, scales_));
    MOE_RETURN_IF_ERROR(read_part(matrix.biases, at, bytes, biases_));
  }
  values_.resize(count);
  const QMatrixView view{.format = matrix.format,
                         .rows = 1,
                         .cols = count,
                         .weight = weight_.data(),
                         .scales = scales_.data(),
                         .biases = biases_.data()};
  decode_row(view, 0, values_);
  return DecodedBlock{.values = values_, .view = view};
}

}  // namespace moepack
