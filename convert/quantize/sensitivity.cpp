#include "convert/quantize/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <system_error>

#include "convert/job/parallel.h"
#include "convert/job/progress_counter.h"
#include "convert/pack/target_format.h"
#include "convert/quantize/expert_matrices.h"
#include "convert/quantize/quantize_inputs.h"
#include "formats/base/checksum.h"
#include "formats/base/elapsed.h"
#include "formats/base/output_file.h"
#include "formats/base/paths.h"
#include "formats/model_dir.h"
#include "quant/expert_damage.h"
#include "quant/linear_algebra.h"
#include "quant/tile.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;
// Grows whenever the same input gives other numbers.
constexpr int kSensitivityVersion = 1;

struct Job {
  QuantizeInputs inputs;
  SensitivityTable table;
  std::size_t threads = 1;
};

Status check_options(const SensitivityOptions& options, const QuantizeInputs& inputs) {
  for (const std::uint32_t bits : options.bits) {
    if (affine_qformat(bits).has_value()) continue;
    return invalid_argument("there is no affine format of " + std::to_string(bits) + " bits",
                            "take of 2, 3, 4, 5, 6 and 8");
  }
  const bool whole = is_valid_group_size(options.group_size) &&
                     inputs.config.hidden_size % options.group_size == 0 &&
                     inputs.config.expert_width % options.group_size == 0;
  if (!whole) {
    return invalid_argument(
        "experts of " + std::to_string(inputs.config.expert_width) + " x " +
            std::to_string(inputs.config.hidden_size) + " are no whole number of groups of " +
            std::to_string(options.group_size),
        "group sizes that fit all experts: " + fitting_groups(inputs.config, kNoGroupRemedy));
  }
  const std::vector<DivergenceResponse> response = inputs.calibration->response();
  const bool says_something = std::any_of(
      response.begin(), response.end(),
      [](const DivergenceResponse& r) { return r.per_energy > 0 || r.per_amplitude > 0; });
  if (says_something) return Status::ok();
  const std::string name = options.calibration.string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                    "does not say what errors of each layer do to the predictions",
                    "make it with this moepack's calibrate and enough --probe-tokens");
}

std::uint64_t plan_digest(const Job& job, const SensitivityOptions& options) {
  std::string text = "sensitivity " + std::to_string(kSensitivityVersion) + " quantizer " +
                     std::to_string(kQuantizerVersion) + " rows " + std::to_string(options.rows) +
                     " weights " + checksum_text(job.inputs.weights.digest()) + " calibration " +
                     checksum_text(job.inputs.calibration->digest()) + "\n";
  text += sensitivity_text(job.table);
  for (const DivergenceResponse& r : job.inputs.calibration->response()) {
    text += std::to_string(r.per_energy) + " " + std::to_string(r.per_amplitude) + "\n";
  }
  return checksum(std::as_bytes(std::span(text)));
}

Result<Job> prepare(const SensitivityOptions& options) {
  Job job;
  MOE_ASSIGN_OR_RETURN(job.inputs, open_quantize_inputs(options.model, options.from, options.method,
                                                        options.calibration));
  MOE_RETURN_IF_ERROR(check_options(options, job.inputs));
  const ModelConfig& config = job.inputs.config;
  SensitivityTable& t = job.table;
  t.source_fingerprint = job.inputs.weights.source().fingerprint;
  t.method = quant_method_name(options.method);
  t.num_layers = config.num_layers;
  t.expert_layers = static_cast<std::uint32_t>(
      std::count_if(config.layers.begin(), config.layers.end(), has_experts));
  t.num_experts = config.num_experts;
  t.hidden_size = config.hidden_size;
  t.expert_width = config.expert_width;
  t.group_size = options.group_size;
  t.page_size = job.inputs.weights.page_size();
  const std::set<std::uint32_t> widths(options.bits.begin(), options.bits.end());
  t.bits.assign(widths.begin(), widths.end());
  t.plan = plan_digest(job, options);
  t.model = directory_name(options.model);
  job.threads = std::min<std::size_t>(bounded_thread_count(options.threads), t.num_experts);
  return job;
}

// Everything but the layers, and the name, which may change.
std::string head_of(SensitivityTable table) {
  table.layers.clear();
  table.model.clear();
  return sensitivity_text(table);
}

// Layers that an earlier run measured.
Status take_measured(const SensitivityOptions& options, SensitivityTable& table) {
  std::error_code ignored;
  if (!fs::exists(options.measurements, ignored)) return Status::ok();
  const auto found = read_sensitivity(options.measurements);
  const std::string name = options.measurements.string();
  if (!found.is_ok() && !options.restart) return found.status();
  if (!found.is_ok() && !begins_as_sensitivity(options.measurements)) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                      "is no table of measurements, which alone --restart replaces",
                      "give --measurements another file");
  }
  if (!found.is_ok()) return Status::ok();
  if (head_of(found.value()) == head_of(table)) {
    table.layers = found.value().layers;
    return Status::ok();
  }
  if (options.restart) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                    "holds measurements of another model, calibration, method or other widths",
                    "give --measurements another file, or --restart to replace them");
}

class LayerMeasure {
 public:
  LayerMeasure(const Job& job, const SensitivityOptions& options, std::uint32_t layer)
      : job_(job), options_(options), layer_(layer) {}

  // Seconds that the layer, which has experts, will take, told by its first expert.
  Result<double> estimate() {
    const auto start = Clock::now();
    MOE_RETURN_IF_ERROR(open());
    const double once = seconds_since(start);
    Worker worker;
    const auto begin = Clock::now();
    MOE_RETURN_IF_ERROR(measure(0, worker));
    return once + seconds_since(begin) * static_cast<double>(job_.table.num_experts) /
                      static_cast<double>(job_.threads);
  }

  Result<LayerSensitivity> run(ProgressCounter& progress) {
    const SensitivityTable& t = job_.table;
    if (!has_experts(job_.inputs.config.layers[layer_])) {
      for (auto& widths : out_.error) widths.resize(t.bits.size());
      return std::move(out_);
    }
    MOE_RETURN_IF_ERROR(open());
    std::vector<Worker> workers(job_.threads);
    const auto one = [&](std::size_t item, std::size_t w) {
      const auto e = static_cast<std::uint32_t>(item);
      Status status = measure(e, workers[w]);
      if (status.is_ok()) progress.add_bytes(job_.inputs.weights.bytes(layer_, e));
      return status;
    };
    MOE_RETURN_IF_ERROR(parallel_items(t.num_experts, job_.threads, one));
    return std::move(out_);
  }

 private:
  struct Worker {
    ExpertReader reader;
    ExpertMatrices expert;
  };

  Status open() {
    const SensitivityTable& t = job_.table;
    MOE_ASSIGN_OR_RETURN(statistics_, job_.inputs.calibration->layer(layer_, job_.threads));
    out_.response = job_.inputs.calibration->response()[layer_];
    out_.share.resize(t.num_experts);
    for (auto& widths : out_.error) {
      widths.assign(t.bits.size(), std::vector<double>(t.num_experts));
    }
    return Status::ok();
  }

  Status measure(std::uint32_t e, Worker& worker) {
    MOE_RETURN_IF_ERROR(worker.reader.read(job_.inputs.weights, layer_, e, worker.expert));
    worker.expert.activation = expert_activation(job_.inputs.config, layer_);
    const ExpertMatrices& w = worker.expert;
    MOE_ASSIGN_OR_RETURN(const InputStatistics inputs, statistics_->gate_up(e));
    MOE_ASSIGN_OR_RETURN(const DownProblem problem, statistics_->down(e, w, w.gate, w.up));
    const ExpertDamage damage = expert_damage(w, inputs, problem,
                                              {.method = options_.method,
                                               .bits = job_.table.bits,
                                               .group_size = options_.group_size,
                                               .rows = options_.rows});
    const ExpertUse use = statistics_->use(e).value_or(ExpertUse{});
    // Of an expert without uses nothing would be lost: count one more than there were.
    const double weight = use.weight + use.one_more;
    out_.share[e] = use.share;
    for (std::size_t p = 0; p < kProjections; ++p) {
      for (std::size_t k = 0; k < job_.table.bits.size(); ++k) {
        const double error = damage.error[p][k] * weight;
        if (!std::isfinite(error)) return overflow(e);
        out_.error[p][k][e] = error;
      }
    }
    return Status::ok();
  }

  Status overflow(std::uint32_t e) const {
    return corrupt(Where{},
                   "layer " + std::to_string(layer_) + ", expert " + std::to_string(e) +
                       ": the squares of its calibrated inputs overflow",
                   "look for values beyond 1e18 in the model, and make the calibration again");
  }

  const Job& job_;
  const SensitivityOptions& options_;
  std::uint32_t layer_;
  std::unique_ptr<LayerStatistics> statistics_;
  LayerSensitivity out_;
};

// Layers with experts that are not measured yet.
std::vector<std::uint32_t> expert_layers_left(const Job& job) {
  std::vector<std::uint32_t> left;
  for (auto l = static_cast<std::uint32_t>(job.table.layers.size()); l < job.table.num_layers;
       ++l) {
    if (has_experts(job.inputs.config.layers[l])) left.push_back(l);
  }
  return left;
}

// Written through a rename: there is always a whole file.
Status save(const fs::path& file, const SensitivityTable& table) {
  return write_output_text(file, sensitivity_text(table));
}

std::uint64_t memory_of(const Job& job) {
  const std::uint64_t hidden = job.table.hidden_size;
  const std::uint64_t width = job.table.expert_width;
  const std::uint64_t widest = std::max(hidden, width);
  const std::uint64_t expert = std::uint64_t{3 * 4} * padded_rows(hidden) * width;
  const std::uint64_t hessians =
      std::uint64_t{3 * 4} * widest * widest + std::uint64_t{4 * 1024} * widest;
  return job.inputs.calibration->layer_bytes() + job.threads * (2 * expert + hessians);
}

Result<SensitivityReport> begin(const SensitivityOptions& options, Job& job) {
  MOE_ASSIGN_OR_RETURN(job, prepare(options));
  if (options.check) MOE_RETURN_IF_ERROR(options.check(job.table));
  MOE_RETURN_IF_ERROR(take_measured(options, job.table));
  if (!job.table.is_finished()) {
    MOE_RETURN_IF_ERROR(create_output_file(options.measurements).status());
  }
  SensitivityReport report;
  report.source = job.inputs.weights.description();
  report.calibration = job.inputs.calibration->description();
  report.notes = job.inputs.notes;
  report.layers_resumed = job.table.layers.size();
  report.memory_bytes = memory_of(job);
  MOE_RETURN_IF_ERROR(check_blas_memory(job.threads, report.memory_bytes));
  return report;
}

}  // namespace

Result<SensitivityReport> plan_sensitivity(const SensitivityOptions& options) {
  Job job;
  MOE_ASSIGN_OR_RETURN(SensitivityReport report, begin(options, job));
  const std::vector<std::uint32_t> left = expert_layers_left(job);
  if (!left.empty()) {
    MOE_ASSIGN_OR_RETURN(const double layer, LayerMeasure(job, options, left.front()).estimate());
    report.estimated_seconds = layer * static_cast<double>(left.size());
  }
  report.table = std::move(job.table);
  return report;
}

Result<SensitivityReport> measure_sensitivity(const SensitivityOptions& options,
                                              const ProgressCallback& progress) {
  const auto start = Clock::now();
  Job job;
  MOE_ASSIGN_OR_RETURN(SensitivityReport report, begin(options, job));
  ConvertProgress state;
  state.layers_total = job.table.num_layers;
  state.layers_done = static_cast<std::uint32_t>(report.layers_resumed);
  for (const std::uint32_t l : expert_layers_left(job)) {
    for (std::uint32_t e = 0; e < job.table.num_experts; ++e) {
      state.bytes_total += job.inputs.weights.bytes(l, e);
    }
  }
  ProgressCounter counter(state, progress);
  while (!job.table.is_finished()) {
    const auto layer = static_cast<std::uint32_t>(job.table.layers.size());
    MOE_ASSIGN_OR_RETURN(LayerSensitivity measured, LayerMeasure(job, options, layer).run(counter));
    job.table.layers.push_back(std::move(measured));
    MOE_RETURN_IF_ERROR(save(options.measurements, job.table));
    counter.layer_done();
  }
  // As it was written, so that a later run takes the same numbers.
  MOE_ASSIGN_OR_RETURN(report.table, read_sensitivity(options.measurements));
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace moepack
