#include "convert/pack.h"

#include "convert/parallel.h"
#include "convert/transcode.h"
#include "formats/checksum.h"
#include "formats/file.h"

namespace moepack {
namespace {

struct Worker {
  Transcoder transcoder;
  std::vector<std::byte> record;
};

Status build_record(const ExpertSource& source, const ExpertLayout& layout, std::uint32_t layer,
                    std::uint32_t expert, Worker& worker) {
  worker.record.resize(layout.record_bytes);
  const std::span<std::byte> record(worker.record);
  for (Projection p : kAllProjections) {
    const ProjectionLayout& part = layout.of(p);
    const MatrixSpans out{.weight = record.subspan(part.offset, part.bytes.weight),
                          .scales = record.subspan(part.scales_offset(), part.bytes.scales),
                          .biases = record.subspan(part.biases_offset(), part.bytes.biases)};
    MOE_RETURN_IF_ERROR(
        worker.transcoder.run(source.of(layer, expert, p), part.format, 0, part.rows, out));
  }
  return Status::ok();
}

}  // namespace

Status write_layer_files(const ExpertSource& source, const std::filesystem::path& directory,
                         std::size_t threads, PackManifest& pack, ProgressCounter& progress) {
  std::vector<Worker> workers(threads);
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    LayerEntry& layer = pack.layers[l];
    MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(directory / layer.file));
    // Sets the padding behind the records to zero.
    MOE_RETURN_IF_ERROR(file.resize(layer.file_size));
    const auto pack_expert = [&](std::size_t item, std::size_t w) -> Status {
      const auto expert = static_cast<std::uint32_t>(item);
      Worker& worker = workers[w];
      MOE_RETURN_IF_ERROR(build_record(source, pack.layout_of(l, expert), l, expert, worker));
      layer.experts[expert].checksum = checksum(worker.record);
      MOE_RETURN_IF_ERROR(file.write_at(layer.experts[expert].offset, worker.record));
      progress.add_bytes(source.bytes(l, expert));
      return Status::ok();
    };
    MOE_RETURN_IF_ERROR(parallel_items(pack.num_experts, threads, pack_expert));
    MOE_RETURN_IF_ERROR(file.commit());
    progress.layer_done();
  }
  return Status::ok();
}

}  // namespace moepack
