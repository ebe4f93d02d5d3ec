#include "convert/export/flashmoe/export_weights.h"

#include <algorithm>
#include <cmath>

#include "convert/export/flashmoe/resident_reader.h"
#include "convert/job/parallel.h"
#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/weights/qcodec.h"
#include "quant/affine.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{2} << 20;

// Rows [begin, end) of one tensor.
struct Block {
  const ExportTensor* tensor;
  std::uint64_t begin;
  std::uint64_t end;
};

std::vector<Block> split_into_blocks(const ExportPlan& plan) {
  std::vector<Block> blocks;
  for (const ExportTensor& tensor : plan.tensors) {
    const ResidentTensor& source = *tensor.source;
    const std::uint64_t row_bytes = std::max<std::uint64_t>(1, source.bytes.total() / source.rows);
    const std::uint64_t rows = std::max<std::uint64_t>(1, kBlockBytes / row_bytes);
    for (std::uint64_t begin = 0; begin < source.rows; begin += rows) {
      blocks.push_back({&tensor, begin, std::min(source.rows, begin + rows)});
    }
  }
  return blocks;
}

// The bytes of consecutive rows, by component.
struct Rows : Components<std::vector<std::byte>> {
  void resize(const MatrixBytes& all, std::uint64_t rows, std::uint64_t count) {
    for (Component c : kAllComponents) (*this)[c].resize(all[c] / rows * count);
  }
};

Status read_rows(const ResidentReader& file, const ResidentTensor& source, const Block& block,
                 Rows& rows) {
  rows.resize(source.bytes, source.rows, block.end - block.begin);
  for (Component c : stored_components(source.format)) {
    const std::uint64_t before = source.bytes[c] / source.rows * block.begin;
    MOE_RETURN_IF_ERROR(file.read_at(source.offsets[c] + before, rows[c]));
  }
  return Status::ok();
}

std::span<std::byte> part_of(std::vector<std::byte>& all, std::uint64_t index,
                             std::uint64_t count) {
  const std::size_t size = all.size() / count;
  return std::span(all).subspan(index * size, size);
}

// Element by element, for norms and the like.
void convert_values(const ExportTensor& tensor, std::span<float> row, std::span<std::byte> out) {
  const bool to_f32 = tensor.format.id == QFormatId::kF32;
  for (std::size_t i = 0; i < row.size(); ++i) {
    float value = row[i];
    if (tensor.change == ExportChange::kNormPlusOne) value += 1;
    if (tensor.undo_neg_exp) value = std::log(-value);
    if (to_f32) {
      store_le(out.data() + 4 * i, value);
    } else {
      store_le(out.data() + 2 * i, f32_to_bf16(value));
    }
  }
}

struct Worker {
  Rows in;
  Rows out;
  std::vector<float> row;
};

Status change_rows(const ModelDir& model, const Block& block, Worker& worker) {
  const ExportTensor& tensor = *block.tensor;
  const ResidentTensor& source = *tensor.source;
  const std::uint64_t count = block.end - block.begin;
  // Rows of the source; conv1d counts its own differently from shape to shape.
  worker.out.resize(tensor.bytes, source.rows, count);
  worker.row.resize(source.cols);
  QMatrixView view{.format = source.format, .rows = count, .cols = source.cols};
  for (Component c : stored_components(source.format)) view.data[c] = worker.in[c].data();
  for (std::uint64_t r = 0; r < count; ++r) {
    decode_row(view, r, worker.row);
    if (tensor.change != ExportChange::kRound) {
      convert_values(tensor, worker.row, part_of(worker.out.codes(), r, count));
      continue;
    }
    if (!std::all_of(worker.row.begin(), worker.row.end(),
                     [](float w) { return std::isfinite(w); })) {
      const std::string file = (model.path / kResidentDataName).string();
      return corrupt(Where{.file = file, .tensor = source.name},
                     "row " + std::to_string(block.begin + r) + " holds a value that is not finite",
                     "it cannot be rounded to 4 bits");
    }
    encode_affine_row(tensor.format, worker.row,
                      {.codes = part_of(worker.out.codes(), r, count),
                       .scales = part_of(worker.out[Component::kScales], r, count),
                       .biases = part_of(worker.out[Component::kBiases], r, count)});
  }
  return Status::ok();
}

// The weight files under temporary names, as one range of logical offsets.
class ChunkFiles {
 public:
  static Result<ChunkFiles> create(const ExportPlan& plan, ExportDirectory& directory) {
    ChunkFiles files(plan);
    for (const ExportChunk& chunk : plan.chunks) {
      MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(directory.add_file(chunk.file)));
      MOE_RETURN_IF_ERROR(file.resize(chunk.size));  // padding is zero
      files.files_.push_back(std::move(file));
    }
    return files;
  }

  // `data` lies in one file.
  Status write_at(std::uint64_t offset, std::span<const std::byte> data) {
    if (data.empty()) return Status::ok();
    std::size_t i = files_.size() - 1;
    while (plan_->chunks[i].begin > offset) --i;
    return files_[i].write_at(offset - plan_->chunks[i].begin, data);
  }
  Status commit() {
    for (AtomicFile& file : files_) MOE_RETURN_IF_ERROR(file.commit());
    return Status::ok();
  }

 private:
  explicit ChunkFiles(const ExportPlan& plan) : plan_(&plan) {}
  const ExportPlan* plan_;
  std::vector<AtomicFile> files_;
};

}  // namespace

Status write_export_weights(const ModelDir& model, const ExportPlan& plan, std::size_t threads,
                            ExportDirectory& directory, ProgressCounter& progress) {
  MOE_ASSIGN_OR_RETURN(const ResidentReader source, ResidentReader::open(model));
  MOE_RETURN_IF_ERROR(source.verify(model));
  MOE_ASSIGN_OR_RETURN(ChunkFiles files, ChunkFiles::create(plan, directory));
  const std::vector<Block> blocks = split_into_blocks(plan);
  std::vector<Worker> workers(threads);
  const auto write_block = [&](std::size_t item, std::size_t w) -> Status {
    const Block& block = blocks[item];
    const ExportTensor& tensor = *block.tensor;
    const std::uint64_t rows = tensor.source->rows;
    Worker& worker = workers[w];
    MOE_RETURN_IF_ERROR(read_rows(source, *tensor.source, block, worker.in));
    const bool copies = tensor.change == ExportChange::kNone;
    if (!copies) MOE_RETURN_IF_ERROR(change_rows(model, block, worker));
    const Rows& out = copies ? worker.in : worker.out;
    for (Component c : stored_components(tensor.format)) {
      const std::uint64_t before = tensor.bytes[c] / rows * block.begin;
      MOE_RETURN_IF_ERROR(files.write_at(tensor.offsets[c] + before, out[c]));
    }
    progress.add_bytes(tensor.source->bytes.total() / rows * (block.end - block.begin));
    return Status::ok();
  };
  MOE_RETURN_IF_ERROR(parallel_items(blocks.size(), threads, write_block));
  return files.commit();
}

}  // namespace moepack
