#include "runtime/vulkan/record_upload.h"

#include <algorithm>
#include <cstring>

#include "formats/base/bytes.h"
#include "runtime/vulkan/device_rows.h"

namespace moepack {
namespace {

// Of a lot, unless one item is larger: as much as the device takes while threads fill another.
constexpr std::uint64_t kLotBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kItemAlignment = 64;
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

std::uint64_t lot_bytes_for(std::uint64_t most_bytes) {
  return std::max(kLotBytes, align_up(most_bytes, kItemAlignment));
}

bool is_mapped(const UploadItem& item) { return item.to.buffer->mapped() != nullptr; }

}  // namespace

std::uint64_t RecordUpload::host_bytes(std::uint64_t most_bytes) {
  return lot_bytes_for(most_bytes) * std::tuple_size_v<decltype(lots_)>;
}

RecordUpload::RecordUpload(VulkanDevice& device, std::uint64_t most_bytes, std::size_t threads)
    : device_(device),
      lot_bytes_(std::min(lot_bytes_for(most_bytes),
                          device.info().most_allocation / kItemAlignment * kItemAlignment)),
      pool_(std::clamp<std::size_t>(threads, 1, kMostThreads)) {}

RecordUpload::~RecordUpload() {
  for (const Lot& lot : lots_) (void)device_.wait_for(lot.submission);
}

// At least one.
std::size_t RecordUpload::count_for_lot(std::span<const UploadItem> items) const {
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (; count < items.size(); ++count) {
    if (is_mapped(items[count])) continue;
    bytes += align_up(items[count].bytes.size(), kItemAlignment);
    if (count > 0 && bytes > lot_bytes_) break;
  }
  return count;
}

Status RecordUpload::prepare(Lot& lot) {
  MOE_RETURN_IF_ERROR(device_.wait_for(lot.submission));
  if (lot.memory.size() == 0) {
    MOE_ASSIGN_OR_RETURN(lot.memory, device_.allocate(lot_bytes_, MemoryKind::kReadback));
  }
  lot.list.emplace(device_);
  return Status::ok();
}

void RecordUpload::add_bytes(std::span<const std::byte> bytes, std::byte* to) {
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
    const std::size_t size = std::min(kPieceBytes, bytes.size() - begin);
    pieces_.push_back({.from = bytes.data() + begin, .to = to + begin, .bytes = size});
  }
}

void RecordUpload::add_rows(const ProjectionLayout& matrix, Component component,
                            const std::byte* from, std::byte* to) {
  const std::uint64_t row_bytes = matrix.bytes[component] / matrix.rows;
  const std::uint64_t step = rows_of_piece(matrix.format, row_bytes, kPieceBytes);
  for (std::uint64_t row = 0; row < matrix.rows; row += step) {
    pieces_.push_back({.from = from + row * row_bytes,
                       .to = to + row * row_bytes,
                       .bytes = std::min(step, matrix.rows - row) * row_bytes,
                       .format = &matrix.format,
                       .component = component,
                       .row_bytes = row_bytes});
  }
}

void RecordUpload::add_pieces(const UploadItem& item, std::byte* to) {
  if (item.layout == nullptr) return add_bytes(item.bytes, to);
  for (const ProjectionLayout& matrix : item.layout->projections) {
    for (const Component c : stored_components(matrix.format)) {
      const std::uint64_t offset = matrix.offset_of(c);
      if (differs_on_device(matrix.format)) {
        add_rows(matrix, c, item.bytes.data() + offset, to + offset);
      } else {
        add_bytes(item.bytes.subspan(offset, matrix.bytes[c]), to + offset);
      }
    }
  }
}

void RecordUpload::copy(const Piece& piece) {
  if (piece.format == nullptr) {
    std::memcpy(piece.to, piece.from, piece.bytes);
  } else {
    to_device_rows(*piece.format, piece.component, piece.bytes / piece.row_bytes, piece.row_bytes,
                   piece.from, piece.to);
  }
}

Status RecordUpload::upload_lot(std::span<const UploadItem> items) {
  Lot* lot = nullptr;
  if (!std::all_of(items.begin(), items.end(), is_mapped)) {
    lot = &lots_[next_lot_];
    next_lot_ = (next_lot_ + 1) % lots_.size();
    MOE_RETURN_IF_ERROR(prepare(*lot));
  }
  pieces_.clear();
  std::uint64_t place = 0;
  for (const UploadItem& item : items) {
    if (is_mapped(item)) {
      add_pieces(item, item.to.buffer->mapped() + item.to.offset);
      continue;
    }
    add_pieces(item, lot->memory.mapped() + place);
    lot->list->copy(lot->memory.handle(), place, item.to.buffer->handle(), item.to.offset,
                    item.bytes.size());
    place += align_up(item.bytes.size(), kItemAlignment);
  }
  pool_.parallel_for(pieces_.size(), 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (const Piece& piece : std::span(pieces_).subspan(begin, end - begin)) copy(piece);
  });
  if (lot == nullptr) return Status::ok();
  lot->list->full_barrier();
  MOE_RETURN_IF_ERROR(device_.submit(*lot->list));
  lot->submission = device_.submissions();
  return Status::ok();
}

Status RecordUpload::upload(std::span<const UploadItem> items) {
  while (!items.empty()) {
    const std::size_t count = count_for_lot(items);
    MOE_RETURN_IF_ERROR(upload_lot(items.first(count)));
    items = items.subspan(count);
  }
  return Status::ok();
}

}  // namespace moepack
