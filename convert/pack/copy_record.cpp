#include "convert/pack/copy_record.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "formats/base/checksum.h"
#include "formats/weights/row_order.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

// The bytes of one record, in order.
class RecordReader {
 public:
  RecordReader(const File& file, std::uint64_t offset) : file_(file), offset_(offset) {}

  Status read(std::span<std::byte> out) {
    MOE_RETURN_IF_ERROR(file_.read_at(offset_, out));
    offset_ += out.size();
    sum_.add(out);
    return Status::ok();
  }
  std::uint64_t checksum() const { return sum_.finish(); }

 private:
  const File& file_;
  std::uint64_t offset_;
  ChecksumStream sum_;
};

// One component, panels by panels: a panel has the place of its rows.
Status copy_component(const ProjectionLayout& from, RowOrder order, Component component,
                      RecordReader& in, RecordStream& out) {
  const bool same = from.format.row_order == order;
  const std::uint64_t row_bytes = from.bytes[component] / from.rows;
  const std::uint64_t panels = std::max<std::uint64_t>(1, kBlockBytes / (kPanelRows * row_bytes));
  const std::uint64_t block = panels * kPanelRows;
  std::vector<std::byte> read;
  for (std::uint64_t row = 0; row < from.rows; row += block) {
    const std::uint64_t count = std::min(block, from.rows - row);
    MOE_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, out.append(count * row_bytes));
    if (same) {
      MOE_RETURN_IF_ERROR(in.read(bytes));
    } else {
      read.resize(bytes.size());
      MOE_RETURN_IF_ERROR(in.read(read));
      const auto move = order == RowOrder::kPanels ? rows_to_panels : panels_to_rows;
      move(from.format, component, count, row_bytes, read.data(), bytes.data());
    }
    MOE_RETURN_IF_ERROR(out.flush_full());
  }
  return Status::ok();
}

}  // namespace

Status copy_record(const PackManifest& pack, std::uint32_t layer, std::uint32_t expert,
                   const File& file, const ExpertLayout& to, RecordStream& out) {
  const ExpertEntry& entry = pack.layers[layer].experts[expert];
  const ExpertLayout& from = pack.layout_of(layer, expert);
  assert(in_order(from, RowOrder::kRows) == in_order(to, RowOrder::kRows));
  RecordReader in(file, entry.offset);
  for (Projection p : kAllProjections) {
    for (Component c : stored_components(from.of(p).format)) {
      MOE_RETURN_IF_ERROR(copy_component(from.of(p), to.of(p).format.row_order, c, in, out));
    }
  }
  const std::uint64_t sum = in.checksum();
  if (!pack.has_checksums || sum == entry.checksum) return Status::ok();
  return corrupt(Where{.file = file.path(), .offset = entry.offset},
                 "expert " + std::to_string(expert) + " has checksum " + checksum_text(sum) + ", " +
                     kPackManifestName + " says " + checksum_text(entry.checksum),
                 "the file is damaged; make the pack again");
}

}  // namespace moepack
