#include "runtime/vulkan/record_upload.h"

#include <algorithm>
#include <cstring>

#include "formats/base/bytes.h"
#include "formats/weights/row_order.h"

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

// Whether its bytes change on the way.
bool is_restored(const UploadItem& item) {
  return item.layout != nullptr && is_in_panels(*item.layout);
}

void restore_rows(const UploadItem& item, std::byte* to) {
  for (const ProjectionLayout& p : item.layout->projections) {
    if (p.format.row_order != RowOrder::kPanels) continue;
    for (const Component c : stored_components(p.format)) {
      panels_to_rows(p.format, c, p.rows, p.bytes[c] / p.rows, item.bytes.data() + p.offset_of(c),
                     to + p.offset_of(c));
    }
  }
}

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

void RecordUpload::add_pieces(const UploadItem& item, std::byte* to) {
  const std::size_t step = is_restored(item) ? item.bytes.size() : kPieceBytes;
  for (std::size_t begin = 0; begin < item.bytes.size(); begin += step) {
    pieces_.push_back({&item, to, begin, std::min(step, item.bytes.size() - begin)});
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
    for (const Piece& piece : std::span(pieces_).subspan(begin, end - begin)) {
      std::memcpy(piece.to + piece.begin, piece.item->bytes.data() + piece.begin, piece.size);
      if (is_restored(*piece.item)) restore_rows(*piece.item, piece.to);
    }
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
