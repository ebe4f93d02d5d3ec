#include "convert/pack/pack.h"

#include <algorithm>

#include "convert/job/parallel.h"
#include "convert/job/record_stream.h"
#include "formats/weights/row_order.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

// Rows of a block: whole panels where there are panels.
std::uint64_t block_rows(const SourceMatrix& source, const ProjectionLayout& part) {
  const std::uint64_t code_row = part.bytes.codes() / part.rows;
  const std::uint64_t source_row = source.bytes() / source.rows;
  const std::uint64_t rows = kBlockBytes / std::max({code_row, source_row, std::uint64_t{1}});
  if (part.format.row_order == RowOrder::kRows) return std::max<std::uint64_t>(1, rows);
  return std::max<std::uint64_t>(kPanelRows, rows / kPanelRows * kPanelRows);
}

// The rows of one projection, block by block; its other components wait until all codes are out, as
// the record orders them. In panels the codes of a block are made as rows first.
Status write_projection(const SourceMatrix& source, const ProjectionLayout& part,
                        PackWorker& worker, RecordStream& record) {
  const std::uint64_t code_row = part.bytes.codes() / part.rows;
  const std::uint64_t block = block_rows(source, part);
  const bool has_panels = part.format.row_order == RowOrder::kPanels;
  const WeightFormat target = in_order(part.format, RowOrder::kRows);
  const std::span<const Component> others = stored_components(part.format).subspan(1);
  for (Component c : others) worker.parts[c].resize(part.bytes[c]);
  for (std::uint64_t begin = 0; begin < part.rows; begin += block) {
    const std::uint64_t end = std::min(part.rows, begin + block);
    MatrixSpans out;
    MOE_ASSIGN_OR_RETURN(const std::span<std::byte> codes, record.append(code_row * (end - begin)));
    if (has_panels) worker.parts.codes().resize(codes.size());
    out.codes() = has_panels ? std::span(worker.parts.codes()) : codes;
    for (Component c : others) {
      const std::uint64_t row = part.bytes[c] / part.rows;
      out[c] = std::span(worker.parts[c]).subspan(row * begin, row * (end - begin));
    }
    MOE_RETURN_IF_ERROR(worker.transcoder.run(source, target, begin, end, out));
    if (has_panels) {
      rows_to_order(part.format, Component::kCodes, end - begin, code_row, out.codes().data(),
                    codes.data());
    }
    MOE_RETURN_IF_ERROR(record.flush_full());
  }
  for (Component c : others) {
    MOE_ASSIGN_OR_RETURN(const std::span<std::byte> out, record.append(part.bytes[c]));
    rows_to_order(part.format, c, part.rows, part.bytes[c] / part.rows, worker.parts[c].data(),
                  out.data());
  }
  return record.flush_full();
}

}  // namespace

Result<std::uint64_t> write_record(const ExpertSource& source, const ExpertLayout& layout,
                                   std::uint32_t layer, std::uint32_t expert, AtomicFile& file,
                                   std::uint64_t offset, PackWorker& worker) {
  RecordStream record(file, offset, worker.output);
  for (Projection p : kAllProjections) {
    MOE_RETURN_IF_ERROR(
        write_projection(source.of(layer, expert, p), layout.of(p), worker, record));
  }
  return record.finish();
}

Result<AtomicFile> write_layer_file(const ExpertSource& source,
                                    const std::filesystem::path& directory, std::uint32_t layer,
                                    std::vector<PackWorker>& workers, PackManifest& pack,
                                    ProgressCounter& progress) {
  LayerEntry& entry = pack.layers[layer];
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(directory / entry.file));
  // Sets the padding behind the records to zero.
  MOE_RETURN_IF_ERROR(file.resize(entry.file_size));
  file.write_directly();
  const auto pack_expert = [&](std::size_t item, std::size_t w) -> Status {
    const auto expert = static_cast<std::uint32_t>(item);
    const ExpertLayout& layout = pack.layout_of(layer, expert);
    ExpertEntry& record = entry.experts[expert];
    MOE_ASSIGN_OR_RETURN(record.checksum, write_record(source, layout, layer, expert, file,
                                                       record.offset, workers[w]));
    progress.add_bytes(source.bytes(layer, expert));
    return Status::ok();
  };
  MOE_RETURN_IF_ERROR(parallel_items(entry.experts.size(), workers.size(), pack_expert));
  return file;
}

}  // namespace moepack
