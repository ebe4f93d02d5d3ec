#include "convert/quantize/quantize_layer.h"

#include <algorithm>

#include "convert/job/parallel.h"
#include "convert/job/record_stream.h"
#include "convert/quantize/expert_matrices.h"
#include "formats/weights/row_order.h"

namespace moepack {
namespace {

// What one thread holds.
struct Worker {
  ExpertReader reader;
  ExpertMatrices expert;
  AlignedBuffer output;
};

Status append_matrix(const AffineMatrix& q, const ProjectionLayout& part, RecordStream& record) {
  const bool has_panels = part.format.row_order == RowOrder::kPanels;
  MOE_ASSIGN_OR_RETURN(const std::span<std::byte> codes, record.append(part.bytes.codes()));
  Components<std::vector<std::byte>> rows;
  for (Component c : stored_components(part.format)) {
    if (c != Component::kCodes || has_panels) rows[c].resize(part.bytes[c]);
  }
  write_affine_matrix(q, {.codes = has_panels ? std::span(rows.codes()) : codes,
                          .scales = rows[Component::kScales],
                          .biases = rows[Component::kBiases]});
  const auto put = [&](Component c, std::span<std::byte> out) {
    rows_to_order(part.format, c, part.rows, part.bytes[c] / part.rows, rows[c].data(), out.data());
  };
  if (has_panels) put(Component::kCodes, codes);
  for (Component c : stored_components(part.format).subspan(1)) {
    MOE_ASSIGN_OR_RETURN(const std::span<std::byte> out, record.append(part.bytes[c]));
    put(c, out);
  }
  return record.flush_full();
}

// Which matrices were measured by their weights alone; by projection and expert, each written by
// one thread.
using MeasuredByWeights = std::array<std::vector<std::uint8_t>, kProjections>;

struct LayerNotes {
  LayerQuality& quality;
  MeasuredByWeights by_weights;
  std::vector<std::uint8_t> is_unknown;  // [experts]

  // What the ledger of another pack says, where it measures what this one does.
  void take_over(const LayerJob& job, const ReusablePacks::Record& record, std::uint32_t e) {
    const QualityLedger* ledger = job.reuse.ledger(record);
    const LayerQuality* there = job.reuse.quality(record);
    is_unknown[e] = there == nullptr ? 1 : 0;
    if (there == nullptr) return;
    const std::vector<std::string> names = QualityLedger().methods;
    for (const Projection p : kAllProjections) {
      const ProjectionQuality& from = there->of(p);
      const auto name = std::find(names.begin(), names.end(), ledger->methods[from.method[e]]);
      const bool by_weight =
          ledger->error == QuantError::kWeight ||
          std::binary_search(from.weight_error.begin(), from.weight_error.end(), e);
      if (name == names.end() || (job.error == QuantError::kWeight && !by_weight)) {
        is_unknown[e] = 1;
        return;
      }
      ProjectionQuality& to = quality.of(p);
      to.method[e] = static_cast<std::uint8_t>(name - names.begin());
      to.before[e] = from.before[e];
      to.after[e] = from.after[e];
      by_weights[static_cast<std::size_t>(p)][e] = by_weight ? 1 : 0;
    }
  }

  void add(const QuantizedMatrix& q, std::uint32_t e, Projection p) {
    ProjectionQuality& columns = quality.of(p);
    columns.method[e] = static_cast<std::uint8_t>(q.method);
    columns.before[e] = q.before;
    columns.after[e] = q.after;
    by_weights[static_cast<std::size_t>(p)][e] = q.is_output_error ? 0 : 1;
  }
};

// The three matrices of one expert, in the order of the record.
class ExpertQuantizer {
 public:
  ExpertQuantizer(const LayerJob& job, const ExpertLayout& layout, std::uint32_t expert,
                  LayerNotes& notes)
      : job_(job), layout_(layout), expert_(expert), notes_(notes) {}

  Status run(Worker& worker, RecordStream& record) {
    const ExpertMatrices& w = worker.expert;
    Matrix gate;
    Matrix up;
    {
      InputStatistics inputs;
      if (job_.statistics != nullptr) {
        MOE_ASSIGN_OR_RETURN(inputs, job_.statistics->gate_up(expert_));
      }
      MOE_RETURN_IF_ERROR(check_finite(inputs));
      const std::optional<GptqFactor> factor = factor_of(inputs);
      MOE_RETURN_IF_ERROR(write(Projection::kGate, w.gate, w.gate, inputs, factor, record, gate));
      MOE_RETURN_IF_ERROR(write(Projection::kUp, w.up, w.up, inputs, factor, record, up));
    }
    DownProblem problem;
    if (job_.statistics != nullptr) {
      MOE_ASSIGN_OR_RETURN(problem, job_.statistics->down(expert_, w, gate, up));
    }
    const InputStatistics& inputs = problem.inputs;
    MOE_RETURN_IF_ERROR(check_finite(inputs));
    const Matrix& target = inputs.is_known ? problem.target : w.down;
    return write(Projection::kDown, w.down, target, inputs, factor_of(inputs), record, gate);
  }

 private:
  // Recorded inputs are finite; their squares need not be.
  Status check_finite(const InputStatistics& inputs) const {
    if (inputs.hessian.allFinite() && inputs.held_out.allFinite() && inputs.wanted.allFinite()) {
      return Status::ok();
    }
    return corrupt(Where{},
                   "layer " + std::to_string(job_.layer) + ", expert " + std::to_string(expert_) +
                       ": the squares of its calibrated inputs overflow",
                   "look for values beyond 1e18 in the model, and make the calibration again");
  }

  std::optional<GptqFactor> factor_of(const InputStatistics& inputs) const {
    if (!inputs.is_known || job_.method != QuantMethod::kGptq) return std::nullopt;
    return factor_hessian(inputs.hessian, kGptqDamping);
  }

  // `stored`: the matrix as it will be read.
  Status write(Projection p, const Matrix& w, const Matrix& target, const InputStatistics& inputs,
               const std::optional<GptqFactor>& factor, RecordStream& record, Matrix& stored) {
    const ProjectionLayout& part = layout_.of(p);
    const MatrixFormat format{.bits = qformat_info(part.format.id).bits,
                              .group_size = part.format.group_size};
    const QuantizedMatrix q = quantize_matrix(job_.method, w, target, part.rows, format, inputs,
                                              factor.has_value() ? &*factor : nullptr);
    notes_.add(q, expert_, p);
    stored_minus(q.values, w, stored);
    stored += w;
    return append_matrix(q.values, part, record);
  }

  const LayerJob& job_;
  const ExpertLayout& layout_;
  std::uint32_t expert_;
  LayerNotes& notes_;
};

LayerNotes prepare(const LayerJob& job, std::uint32_t num_experts, LayerQuality& quality) {
  quality.layer = job.layer;
  quality.samples = job.samples;
  LayerNotes notes{
      .quality = quality, .by_weights = {}, .is_unknown = std::vector<std::uint8_t>(num_experts)};
  for (ProjectionQuality& p : quality.projections) {
    p.method.assign(num_experts, 0);
    p.before.assign(num_experts, 0);
    p.after.assign(num_experts, 0);
    p.weight_error.clear();
  }
  for (std::vector<std::uint8_t>& flags : notes.by_weights) flags.assign(num_experts, 0);
  return notes;
}

// Names, in a ledger of output errors, the experts that have none; drops a layer of which not
// everything is known.
void finish(const LayerJob& job, LayerNotes& notes) {
  const auto& unknown = notes.is_unknown;
  if (std::find(unknown.begin(), unknown.end(), 1) != unknown.end()) {
    notes.quality = {.layer = job.layer, .samples = {}, .projections = {}};
    return;
  }
  if (job.error == QuantError::kWeight) return;
  for (Projection p : kAllProjections) {
    const std::vector<std::uint8_t>& flags = notes.by_weights[static_cast<std::size_t>(p)];
    for (std::uint32_t e = 0; e < flags.size(); ++e) {
      if (flags[e] != 0) notes.quality.of(p).weight_error.push_back(e);
    }
  }
}

}  // namespace

Result<AtomicFile> quantize_layer(const LayerJob& job, const std::filesystem::path& directory,
                                  std::size_t threads, PackManifest& pack, LayerQuality& quality,
                                  ProgressCounter& progress) {
  LayerEntry& entry = pack.layers[job.layer];
  LayerNotes notes = prepare(job, pack.num_experts, quality);
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(directory / entry.file));
  MOE_RETURN_IF_ERROR(file.resize(entry.file_size));
  file.write_directly();
  std::vector<Worker> workers(threads);
  const auto run = [&](std::size_t item, std::size_t w) -> Status {
    const auto e = static_cast<std::uint32_t>(item);
    Worker& worker = workers[w];
    ReusablePacks::Record there;
    if (job.reuse.find(job.layer, e, pack.layout_of(job.layer, e), there)) {
      RecordStream copy(file, entry.experts[e].offset, worker.output);
      MOE_RETURN_IF_ERROR(job.reuse.copy(there, pack.layout_of(job.layer, e), copy));
      MOE_ASSIGN_OR_RETURN(entry.experts[e].checksum, copy.finish());
      notes.take_over(job, there, e);
      progress.add_bytes(job.weights.bytes(job.layer, e));
      return Status::ok();
    }
    MOE_RETURN_IF_ERROR(worker.reader.read(job.weights, job.layer, e, worker.expert));
    worker.expert.activation = job.activation;
    RecordStream record(file, entry.experts[e].offset, worker.output);
    ExpertQuantizer quantizer(job, pack.layout_of(job.layer, e), e, notes);
    MOE_RETURN_IF_ERROR(quantizer.run(worker, record));
    MOE_ASSIGN_OR_RETURN(entry.experts[e].checksum, record.finish());
    progress.add_bytes(job.weights.bytes(job.layer, e));
    return Status::ok();
  };
  MOE_RETURN_IF_ERROR(parallel_items(pack.num_experts, threads, run));
  finish(job, notes);
  return file;
}

}  // namespace moepack
