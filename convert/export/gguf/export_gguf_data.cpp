#include "convert/export/gguf/export_gguf_data.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "convert/export/flashmoe/resident_reader.h"
#include "convert/job/parallel.h"
#include "convert/source/expert_name.h"
#include "convert/source/stored_matrix.h"
#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/number_text.h"
#include "formats/weights/affine_blocks.h"
#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{2} << 20;

// The bytes of consecutive rows, by component, and what a worker needs besides.
struct Worker {
  Components<std::vector<std::byte>> parts;
  std::vector<std::byte> out;
  std::vector<std::byte> row_bytes;
  std::vector<float> row;
};

// A matrix of the model and what becomes of it.
struct Job {
  // Bytes of a component from its byte `at` on; its rows follow each other.
  std::function<Status(Component component, std::uint64_t at, std::span<std::byte> out)> read;
  std::string file;  // for messages
  std::string name;
  WeightFormat format;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  MatrixBytes bytes;
  GgufChange change = GgufChange::kNone;
  QFormatId target = QFormatId::kF32;
  const RowRuns* gather = nullptr;  // as GgufResident's; nullptr or empty: none
  const RowRuns* scatter = nullptr;
  RowRuns columns;  // in units of blocks (or values) of the target
  const GgufOutputTensor* tensor = nullptr;
  std::uint64_t first_byte = 0;  // of the tensor, where this matrix begins

  std::uint64_t source_row_bytes() const { return bytes.total() / rows; }
  std::uint64_t out_row_bytes() const { return matrix_bytes({.id = target}, 1, cols)->codes(); }
  // As many rows as make a block of work.
  std::uint64_t block_rows() const {
    const std::uint64_t widest = std::max({source_row_bytes(), out_row_bytes(), std::uint64_t{1}});
    return std::max<std::uint64_t>(1, kBlockBytes / widest);
  }
};

RowRuns in_units(const RowRuns& runs, std::uint64_t unit) {
  RowRuns out;
  for (const RowRun& run : runs) {
    out.push_back({run.first / unit, run.rows / unit, run.stride / unit, run.count});
  }
  return out;
}

// Values in a unit that cannot be divided.
std::uint64_t unit_values(QFormatId target) {
  return std::max<std::uint64_t>(1, qformat_info(target).block_values);
}

// Rows [begin, begin + count) of the output's order, of one component.
Status read_component(const Job& job, Component component, std::uint64_t begin, std::uint64_t count,
                      Worker& worker) {
  const std::uint64_t row_bytes = job.bytes[component] / job.rows;
  std::vector<std::byte>& out = worker.parts[component];
  out.resize(row_bytes * count);
  if (job.gather == nullptr || job.gather->empty()) {
    return job.read(component, begin * row_bytes, out);
  }
  const RowGather gather(*job.gather, row_bytes);
  return gather.for_each_piece(begin * row_bytes, out.size(),
                               [&](std::uint64_t source, std::uint64_t at, std::uint64_t size) {
                                 return job.read(component, source,
                                                 std::span(out).subspan(at, size));
                               });
}

Status read_scales(const Job& job, std::uint64_t begin, std::uint64_t count, Worker& worker) {
  for (Component c : stored_components(job.format)) {
    if (c != Component::kCodes) MOE_RETURN_IF_ERROR(read_component(job, c, begin, count, worker));
  }
  return Status::ok();
}

QMatrixView view_of(const Job& job, const Worker& worker, std::uint64_t count, bool with_codes) {
  QMatrixView view{.format = job.format, .rows = count, .cols = job.cols};
  for (Component c : stored_components(job.format)) {
    if (with_codes || c != Component::kCodes) view.data[c] = worker.parts[c].data();
  }
  return view;
}

Status refuse_inexact(const Job& job, std::uint64_t row, const InexactGroup& inexact) {
  return unsupported(Where{.file = job.file, .tensor = job.name},
                     "row " + std::to_string(row) + ", group " + std::to_string(inexact.group) +
                         " has the " + (inexact.is_scale ? "scale " : "bias ") +
                         six_digits(inexact.value) +
                         ", which is no float16, as the blocks of GGUF want it");
}

void widen(const Job& job, std::span<const float> row, std::byte* out) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    float value = row[i];
    if (job.change == GgufChange::kNormPlusOne) value = 1.0F + value;
    if (job.change == GgufChange::kNegExp) value = -std::exp(value);
    store_le(out + 4 * i, value);
  }
}

// The output's columns in their order.
Status reorder_columns(const Job& job, std::span<std::byte> row, std::vector<std::byte>& copy) {
  const QFormatInfo& info = qformat_info(job.target);
  copy.assign(row.begin(), row.end());
  const std::uint64_t unit = info.block_values != 0 ? info.block_bytes : info.bits / 8;
  const RowGather gather(job.columns, unit);
  return gather.for_each_piece(0, row.size(),
                               [&](std::uint64_t source, std::uint64_t at, std::uint64_t size) {
                                 std::copy_n(copy.begin() + static_cast<std::ptrdiff_t>(source),
                                             size, row.begin() + static_cast<std::ptrdiff_t>(at));
                                 return Status::ok();
                               });
}

// worker.out: rows [begin, begin + count) as the file holds them.
Status encode_rows(const Job& job, std::uint64_t begin, std::uint64_t count, Worker& worker) {
  const std::uint64_t row_bytes = job.out_row_bytes();
  if (job.change == GgufChange::kNone) {
    worker.out.swap(worker.parts.codes());
  } else {
    worker.out.resize(row_bytes * count);
    worker.row.resize(job.cols);
    const QMatrixView view = view_of(job, worker, count, true);
    for (std::uint64_t r = 0; r < count; ++r) {
      const std::span<std::byte> out = std::span(worker.out).subspan(r * row_bytes, row_bytes);
      if (job.change == GgufChange::kBlocks) {
        const auto inexact = encode_affine_blocks(view, r, job.target, out);
        if (inexact.has_value()) return refuse_inexact(job, begin + r, *inexact);
      } else {
        decode_row(view, r, worker.row);
        widen(job, worker.row, out.data());
      }
    }
  }
  if (job.columns.empty()) return Status::ok();
  for (std::uint64_t r = 0; r < count; ++r) {
    MOE_RETURN_IF_ERROR(reorder_columns(
        job, std::span(worker.out).subspan(r * row_bytes, row_bytes), worker.row_bytes));
  }
  return Status::ok();
}

Status write_rows(const Job& job, std::uint64_t begin, std::uint64_t count, Worker& worker,
                  GgufOutput& output, ProgressCounter& progress) {
  MOE_RETURN_IF_ERROR(read_component(job, Component::kCodes, begin, count, worker));
  MOE_RETURN_IF_ERROR(read_scales(job, begin, count, worker));
  MOE_RETURN_IF_ERROR(encode_rows(job, begin, count, worker));
  progress.add_bytes(job.source_row_bytes() * count);
  const std::uint64_t row_bytes = job.out_row_bytes();
  if (job.scatter == nullptr || job.scatter->empty()) {
    return output.write_at(*job.tensor, job.first_byte + begin * row_bytes, worker.out);
  }
  const RowGather scatter(*job.scatter, row_bytes);
  return scatter.for_each_piece(begin * row_bytes, count * row_bytes,
                                [&](std::uint64_t place, std::uint64_t at, std::uint64_t size) {
                                  return output.write_at(*job.tensor, place,
                                                         std::span(worker.out).subspan(at, size));
                                });
}

// Whether the blocks of the whole matrix are exact; reads no more than it must.
Status check_rows(const Job& job, Worker& worker) {
  if (job.change != GgufChange::kBlocks || job.format.scale_type == DType::kF16) {
    return Status::ok();
  }
  for (std::uint64_t begin = 0; begin < job.rows; begin += job.block_rows()) {
    const std::uint64_t count = std::min(job.block_rows(), job.rows - begin);
    MOE_RETURN_IF_ERROR(read_scales(job, begin, count, worker));
    bool has_codes = false;
    for (std::uint64_t r = 0; r < count; ++r) {
      auto inexact = find_inexact_group(view_of(job, worker, count, has_codes), r);
      if (inexact.has_value() && !has_codes) {
        MOE_RETURN_IF_ERROR(read_component(job, Component::kCodes, begin, count, worker));
        has_codes = true;
        inexact = find_inexact_group(view_of(job, worker, count, true), r);
      }
      if (inexact.has_value()) return refuse_inexact(job, begin + r, *inexact);
    }
  }
  return Status::ok();
}

// ---- residents ----------------------------------------------------------------------------------

Job resident_job(const ModelDir& model, const ResidentReader& reader, const GgufResident& resident,
                 std::span<const GgufOutputTensor> tensors) {
  const ResidentTensor& source = *resident.source;
  Job job;
  job.read = [&reader, &source](Component c, std::uint64_t at, std::span<std::byte> out) {
    return reader.read_at(source.offsets[c] + at, out);
  };
  job.file = (model.path / kResidentDataName).string();
  job.name = source.name;
  job.format = source.format;
  job.rows = resident.rows;
  job.cols = resident.cols;
  job.bytes = source.bytes;
  job.change = resident.change;
  job.target = resident.target;
  job.gather = &resident.gather;
  job.scatter = &resident.scatter;
  job.columns = in_units(resident.columns, unit_values(resident.target));
  if (!tensors.empty()) job.tensor = &tensors[resident.tensor];
  return job;
}

struct Block {
  const Job* job;
  std::uint64_t begin;
  std::uint64_t count;
};

Status write_residents(const ModelDir& model, const GgufPlan& plan, const GgufHead& head,
                       std::vector<Worker>& workers, GgufOutput& output,
                       ProgressCounter& progress) {
  MOE_ASSIGN_OR_RETURN(const ResidentReader reader, ResidentReader::open(model));
  MOE_RETURN_IF_ERROR(reader.verify(model));
  std::vector<Job> jobs;
  for (const GgufResident& resident : plan.residents) {
    jobs.push_back(resident_job(model, reader, resident, head.tensors()));
  }
  std::vector<Block> blocks;
  for (const Job& job : jobs) {
    for (std::uint64_t begin = 0; begin < job.rows; begin += job.block_rows()) {
      blocks.push_back({&job, begin, std::min(job.block_rows(), job.rows - begin)});
    }
  }
  return parallel_items(blocks.size(), workers.size(), [&](std::size_t item, std::size_t w) {
    const Block& block = blocks[item];
    return write_rows(*block.job, block.begin, block.count, workers[w], output, progress);
  });
}

// ---- experts ------------------------------------------------------------------------------------

struct LayerFile {
  const File& file;
  std::uint32_t layer;
};

Job expert_job(const ModelDir& model, const GgufPlan& plan, const LayerFile& at,
               std::uint32_t expert, Projection projection) {
  const ProjectionLayout& layout = model.pack.layout_of(at.layer, expert).of(projection);
  const std::uint64_t record = model.pack.layers[at.layer].experts[expert].offset;
  Job job;
  const StoredMatrix stored = stored_matrix(layout, at.file, record);
  job.read = [stored](Component c, std::uint64_t begin, std::span<std::byte> out) {
    return stored.ranges[c].read(begin, out);
  };
  job.file = at.file.path();
  job.name = expert_name(at.layer, expert, projection);
  job.format = stored.format;
  job.rows = layout.rows;
  job.cols = layout.cols;
  job.bytes = layout.bytes;
  job.target = plan.layers[at.layer].targets[static_cast<std::size_t>(projection)];
  job.change = is_affine(layout.format) ? GgufChange::kBlocks : GgufChange::kNone;
  return job;
}

Status verify_record(const ModelDir& model, const LayerFile& at, std::uint32_t expert,
                     Worker& worker) {
  if (!model.pack.has_checksums) return Status::ok();
  const ExpertEntry& entry = model.pack.layers[at.layer].experts[expert];
  const std::uint64_t size = model.pack.layouts[entry.layout].record_bytes;
  ChecksumStream sum;
  for (std::uint64_t done = 0; done < size;) {
    std::vector<std::byte>& block = worker.out;
    block.resize(std::min(kBlockBytes, size - done));
    MOE_RETURN_IF_ERROR(at.file.read_at(entry.offset + done, block));
    sum.add(block);
    done += block.size();
  }
  if (sum.finish() == entry.checksum) return Status::ok();
  return corrupt(Where{.file = at.file.path(), .tensor = {}, .offset = entry.offset},
                 "expert " + std::to_string(expert) + " has checksum " +
                     checksum_text(sum.finish()) + ", " + kPackManifestName + " says " +
                     checksum_text(entry.checksum),
                 "the file is damaged; make the pack again");
}

Status write_expert(const ModelDir& model, const GgufPlan& plan, const GgufHead& head,
                    const LayerFile& at, std::uint32_t expert, Worker& worker, GgufOutput& output,
                    ProgressCounter& progress) {
  MOE_RETURN_IF_ERROR(verify_record(model, at, expert, worker));
  for (Projection p : kAllProjections) {
    Job job = expert_job(model, plan, at, expert, p);
    job.tensor = &head.tensors()[plan.layers[at.layer].tensors[static_cast<std::size_t>(p)]];
    job.first_byte = expert * job.rows * job.out_row_bytes();
    for (std::uint64_t begin = 0; begin < job.rows; begin += job.block_rows()) {
      MOE_RETURN_IF_ERROR(write_rows(job, begin, std::min(job.block_rows(), job.rows - begin),
                                     worker, output, progress));
    }
  }
  return Status::ok();
}

}  // namespace

std::uint64_t gguf_source_bytes(const ModelDir& model, const GgufPlan& plan) {
  std::uint64_t bytes = 0;
  for (const GgufResident& resident : plan.residents) bytes += resident.source->bytes.total();
  for (const LayerEntry& layer : model.pack.layers) {
    for (const ExpertEntry& expert : layer.experts) {
      bytes += model.pack.layouts[expert.layout].record_bytes;
    }
  }
  return bytes;
}

Status check_gguf_exact(const ModelDir& model, const GgufPlan& plan, std::size_t threads) {
  std::vector<Worker> workers(threads);
  MOE_ASSIGN_OR_RETURN(const ResidentReader reader, ResidentReader::open(model));
  MOE_RETURN_IF_ERROR(
      parallel_items(plan.residents.size(), threads, [&](std::size_t item, std::size_t w) {
        return check_rows(resident_job(model, reader, plan.residents[item], {}), workers[w]);
      }));
  for (std::uint32_t layer = 0; layer < model.pack.num_layers; ++layer) {
    MOE_ASSIGN_OR_RETURN(const File file,
                         File::open(model.pack_path / model.pack.layers[layer].file));
    const LayerFile at{file, layer};
    const auto check = [&](std::size_t item, std::size_t w) -> Status {
      for (Projection p : kAllProjections) {
        const auto expert = static_cast<std::uint32_t>(item);
        MOE_RETURN_IF_ERROR(check_rows(expert_job(model, plan, at, expert, p), workers[w]));
      }
      return Status::ok();
    };
    MOE_RETURN_IF_ERROR(parallel_items(model.pack.num_experts, threads, check));
  }
  return Status::ok();
}

Status write_gguf_data(const ModelDir& model, const GgufPlan& plan, const GgufHead& head,
                       std::size_t threads, GgufOutput& output, ProgressCounter& progress) {
  std::vector<Worker> workers(threads);
  MOE_RETURN_IF_ERROR(write_residents(model, plan, head, workers, output, progress));
  for (std::uint32_t layer = 0; layer < model.pack.num_layers; ++layer) {
    MOE_ASSIGN_OR_RETURN(const File file,
                         File::open(model.pack_path / model.pack.layers[layer].file));
    const LayerFile at{file, layer};
    const auto write = [&](std::size_t item, std::size_t w) {
      return write_expert(model, plan, head, at, static_cast<std::uint32_t>(item), workers[w],
                          output, progress);
    };
    MOE_RETURN_IF_ERROR(parallel_items(model.pack.num_experts, threads, write));
    progress.layer_done();
  }
  return Status::ok();
}

}  // namespace moepack
