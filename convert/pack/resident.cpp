#include "convert/pack/resident.h"

#include <algorithm>

#include "convert/job/parallel.h"
#include "convert/pack/transcode.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

// Rows [begin, end) of one tensor.
struct Block {
  std::size_t tensor;
  std::uint64_t begin;
  std::uint64_t end;
};

std::vector<Block> split_into_blocks(std::span<const SourceMatrix> sources) {
  std::vector<Block> blocks;
  for (std::size_t t = 0; t < sources.size(); ++t) {
    const SourceMatrix& source = sources[t];
    const std::uint64_t row_bytes = std::max<std::uint64_t>(1, source.bytes() / source.rows);
    const std::uint64_t rows = std::max<std::uint64_t>(1, kBlockBytes / row_bytes);
    for (std::uint64_t begin = 0; begin < source.rows; begin += rows) {
      blocks.push_back({t, begin, std::min(source.rows, begin + rows)});
    }
  }
  return blocks;
}

struct Worker {
  Transcoder transcoder;
  Components<std::vector<std::byte>> parts;
};

Status write_block(const SourceMatrix& source, const ResidentTensor& tensor, const Block& block,
                   Worker& worker, AtomicFile& file) {
  const std::uint64_t count = block.end - block.begin;
  const std::span<const Component> components = stored_components(tensor.format);
  MatrixSpans out;
  for (Component c : components) {
    worker.parts[c].resize(tensor.bytes[c] / tensor.rows * count);
    out[c] = worker.parts[c];
  }
  MOE_RETURN_IF_ERROR(worker.transcoder.run(source, tensor.format, block.begin, block.end, out));
  for (Component c : components) {
    const std::uint64_t at = tensor.offsets[c] + tensor.bytes[c] / tensor.rows * block.begin;
    MOE_RETURN_IF_ERROR(file.write_at(at, worker.parts[c]));
    if (c == Component::kCodes) file.start_writeback(at, worker.parts[c].size());
  }
  return Status::ok();
}

}  // namespace

Result<std::uint64_t> write_matrices(std::span<const SourceMatrix> sources,
                                     std::span<const ResidentTensor> tensors,
                                     std::uint64_t data_size, const std::filesystem::path& path,
                                     std::size_t threads, ProgressCounter& progress,
                                     NotFiniteTensors* not_finite) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  // Sets the padding between components to zero.
  MOE_RETURN_IF_ERROR(file.resize(data_size));
  const std::vector<Block> blocks = split_into_blocks(sources);
  std::vector<Worker> workers(threads);
  for (Worker& worker : workers) worker.transcoder = Transcoder(not_finite);
  const auto convert_block = [&](std::size_t item, std::size_t worker) -> Status {
    const Block& block = blocks[item];
    const SourceMatrix& source = sources[block.tensor];
    MOE_RETURN_IF_ERROR(write_block(source, tensors[block.tensor], block, workers[worker], file));
    progress.add_bytes(source.bytes() / source.rows * (block.end - block.begin));
    return Status::ok();
  };
  MOE_RETURN_IF_ERROR(parallel_items(blocks.size(), threads, convert_block));
  MOE_RETURN_IF_ERROR(file.commit());
  // Over the finished file, in order, because tensors are written out of order.
  return checksum_of_file(path);
}

Status write_resident_data(std::span<const SourceMatrix> sources,
                           const std::filesystem::path& directory, std::size_t threads,
                           ResidentManifest& manifest, ProgressCounter& progress,
                           NotFiniteTensors* not_finite) {
  MOE_ASSIGN_OR_RETURN(
      manifest.checksum,
      write_matrices(sources, manifest.tensors, manifest.data_size, directory / kResidentDataName,
                     threads, progress, not_finite));
  return Status::ok();
}

}  // namespace moepack
