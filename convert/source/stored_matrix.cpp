#include "convert/source/stored_matrix.h"

#include <algorithm>
#include <cassert>

#include "formats/weights/qcodec.h"
#include "formats/weights/row_order.h"

namespace moepack {
namespace {

FileRange file_range(const SourceMatrix& source, const TensorSlice& slice) {
  return {.file = &slice.tensor.file(),
          .offset = slice.tensor.offset() + slice.begin,
          .bytes = slice.bytes,
          .runs = source.runs,
          .row_bytes = slice.bytes / source.rows};
}

// Through whole rows, which is how encodings make them.
Status read_encoded(const FileRange& range, std::uint64_t begin, std::span<std::byte> out) {
  if (out.empty()) return Status::ok();
  const std::uint64_t first = begin / range.row_bytes;
  const std::uint64_t end = (begin + out.size() + range.row_bytes - 1) / range.row_bytes;
  const std::uint64_t before = begin - first * range.row_bytes;
  if (before == 0 && out.size() == (end - first) * range.row_bytes) {
    return range.encoded->read_rows(range.component, first, end, out);
  }
  std::vector<std::byte> rows((end - first) * range.row_bytes);
  MOE_RETURN_IF_ERROR(range.encoded->read_rows(range.component, first, end, rows));
  std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(before), out.size(), out.begin());
  return Status::ok();
}

// Whole panels are read and restored; of the first and the last a part may be wanted.
Status read_panels(const FileRange& range, std::uint64_t begin, std::span<std::byte> out) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
  const std::uint64_t panel = kPanelRows * range.row_bytes;
  const std::uint64_t panels_end = range.bytes / panel * panel;
  const std::uint64_t end = begin + out.size();
  std::vector<std::byte> stored;
  std::vector<std::byte> rows;
  while (!out.empty() && begin < panels_end) {
    const std::uint64_t first = begin / panel * panel;
    const std::uint64_t most = std::max(panel, kMostBytes / panel * panel);
    const std::uint64_t size = std::min(most, (end - first + panel - 1) / panel * panel);
    const std::uint64_t whole = std::min(size, panels_end - first);
    stored.resize(whole);
    rows.resize(whole);
    MOE_RETURN_IF_ERROR(range.file->read_at(range.offset + first, stored));
    panels_to_rows(*range.panels, range.component, whole / range.row_bytes, range.row_bytes,
                   stored.data(), rows.data());
    const std::span<const std::byte> wanted = std::span(rows).subspan(begin - first);
    const std::size_t count = std::min(wanted.size(), out.size());
    std::copy_n(wanted.begin(), count, out.begin());
    out = out.subspan(count);
    begin += count;
  }
  return out.empty() ? Status::ok() : range.file->read_at(range.offset + begin, out);
}

}  // namespace

Status FileRange::read(std::uint64_t begin, std::span<std::byte> out) const {
  if (encoded != nullptr) return read_encoded(*this, begin, out);
  if (panels.has_value()) return read_panels(*this, begin, out);
  if (runs == nullptr) return file->read_at(offset + begin, out);
  return RowGather(*runs, row_bytes)
      .for_each_piece(begin, out.size(),
                      [&](std::uint64_t from, std::uint64_t at, std::uint64_t size) {
                        return file->read_at(offset + from, out.subspan(at, size));
                      });
}

std::uint64_t FileRange::file_offset(std::uint64_t byte) const {
  if (!panels.has_value()) return offset + byte;
  return offset + byte_in_panels(*panels, component, bytes / row_bytes, row_bytes, byte);
}

std::uint64_t StoredMatrix::bytes() const {
  std::uint64_t sum = 0;
  for (const FileRange& range : ranges) sum += range.bytes;
  return sum;
}

StoredMatrix stored_matrix(const SourceMatrix& source) {
  StoredMatrix matrix{.format = source.format, .rows = source.rows, .cols = source.cols};
  if (source.encoded != nullptr) {
    const auto shared = std::make_shared<const SourceMatrix>(source);
    const TensorSlice& codes = source.slices.codes();
    for (Component c : stored_components(source.format)) {
      const std::uint64_t row = source.row_bytes(c);
      matrix.ranges[c] = {.file = &codes.tensor.file(),
                          .offset = codes.tensor.offset() + codes.begin,
                          .bytes = row * source.rows,
                          .row_bytes = row,
                          .encoded = shared,
                          .component = c};
    }
    return matrix;
  }
  for (Component c : stored_components(source.format)) {
    matrix.ranges[c] = file_range(source, source.slices[c]);
  }
  return matrix;
}

StoredMatrix stored_matrix(const ProjectionLayout& part, const File& file, std::uint64_t offset) {
  StoredMatrix matrix{
      .format = in_order(part.format, RowOrder::kRows), .rows = part.rows, .cols = part.cols};
  for (Component c : stored_components(part.format)) {
    FileRange& range = matrix.ranges[c];
    range = {.file = &file, .offset = offset + part.offset_of(c), .bytes = part.bytes[c]};
    if (part.format.row_order == RowOrder::kRows) continue;
    range.row_bytes = part.bytes[c] / part.rows;
    range.panels = part.format;
    range.component = c;
  }
  return matrix;
}

std::uint64_t component_byte(const WeightFormat& format, Component component, std::uint64_t index) {
  if (component != Component::kCodes) {
    return index / format.group_size * (dtype_bits(format.scale_type) / 8);
  }
  const QFormatInfo& info = qformat_info(format.id);
  if (info.kind == QKind::kBlock) return index / info.block_values * info.block_bytes;
  // Multiples of eight first, as the product of a large index and the bits might overflow.
  return index / 8 * info.bits + index % 8 * info.bits / 8;
}

Result<DecodedBlock> BlockDecoder::decode(const StoredMatrix& matrix, std::uint64_t begin,
                                          std::uint64_t count) {
  assert(count > 0 && count <= kDecodeBlock);
  assert(begin + count <= matrix.elements());
  QMatrixView view{.format = matrix.format, .rows = 1, .cols = count};
  for (Component c : stored_components(matrix.format)) {
    const std::uint64_t first = component_byte(matrix.format, c, begin);
    const std::uint64_t end = component_byte(matrix.format, c, begin + count);
    parts_[c].resize(end - first);
    MOE_RETURN_IF_ERROR(matrix.ranges[c].read(first, parts_[c]));
    view.data[c] = parts_[c].data();
  }
  values_.resize(count);
  decode_row(view, 0, values_);
  return DecodedBlock{.values = values_, .view = view};
}

}  // namespace moepack
