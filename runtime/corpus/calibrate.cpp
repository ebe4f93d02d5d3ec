#include "runtime/corpus/calibrate.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/dtype.h"
#include "formats/base/elapsed.h"
#include "formats/base/file_blocks.h"
#include "formats/base/paths.h"
#include "formats/base/space.h"
#include "runtime/corpus/calibrate_probe.h"
#include "runtime/corpus/calibration_output.h"
#include "runtime/corpus/divergence_response.h"
#include "runtime/model/available_memory.h"
#include "runtime/model/token_ids.h"

namespace moepack {
namespace {

// Everything that is settled before anything is computed.
struct Job {
  ModelDir model;
  CorpusOptions corpus;
  std::vector<std::int32_t> tokens;        // of the windows, one after another
  std::vector<TokenWindow> windows;        // of `tokens`
  std::vector<std::int32_t> probe_tokens;  // some of `tokens`
  std::vector<TokenWindow> probe_windows;  // of `probe_tokens`
  CalibrationState wanted;
  CalibrateReport report;
};

std::uint64_t text_sum(const std::string& text) { return checksum(std::as_bytes(std::span(text))); }

// Digests of everything that the bytes of the result depend on.
Result<CalibrationState> wanted_state(const Job& job, const CalibrateOptions& options) {
  std::string manifests =
      pack_manifest_text(job.model.pack) + resident_manifest_text(job.model.residents);
  for (const ResidentOverlay& overlay : job.model.overlays) {
    manifests += resident_overlay_text(overlay);
    if (overlay.has_checksum) continue;
    MOE_ASSIGN_OR_RETURN(const std::uint64_t sum,
                         checksum_of_file(options.model / kOverlayDirectory / overlay.data_name()));
    manifests += checksum_text(sum);
  }
  const std::uint64_t model = text_sum(manifests);
  const std::uint64_t text = checksum(std::as_bytes(std::span(job.tokens)));
  CalibrationState state;
  state.what =
      printable(options.model.filename().string()) + " " + checksum_text(model) + ", " +
      std::to_string(job.tokens.size()) + " tokens " + checksum_text(text) + " in windows of " +
      std::to_string(options.context) + ", kernels " +
      std::string(options.backend == Backend::kReference ? "reference" : job.corpus.kernels->bits);
  state.plan = text_sum(std::to_string(kCalibrationFormatVersion) + " " + state.what);
  state.tokens = job.tokens.size();
  state.num_experts = job.model.config.num_experts;
  state.experts_per_token = job.model.config.experts_per_token;
  return state;
}

// Compression may make room that cannot be counted on: what is certain not to fit is refused.
Status check_space_at(const std::filesystem::path& output, const CalibrateReport& report) {
  const std::uint64_t layers_left = report.manifest.num_layers - report.layers_resumed;
  return check_space(output, "the calibration", layers_left * report.layer_bytes / 2,
                     report.free_bytes, "free some space or give a smaller --max-tokens");
}

Status check_memory(const Job& job, const CorpusMemory& memory,
                    std::optional<std::uint64_t> available) {
  if (!available.has_value()) return Status::ok();
  const std::uint64_t usable = *available - *available / kCorpusReserveDivisor;
  const std::uint64_t fitting =
      usable > memory.fixed_bytes() ? (usable - memory.fixed_bytes()) / memory.per_token_bytes : 0;
  const std::uint64_t tokens = job.tokens.size();
  const std::uint64_t copies =
      response_tokens(job.model.config.num_layers, job.probe_tokens.size());
  if (std::max(tokens, copies) <= fitting) return Status::ok();
  const std::string remedy =
      tokens > fitting
          ? "--max-tokens " + std::to_string(fitting)
          : "--probe-tokens " + std::to_string(fitting / (copies / job.probe_tokens.size()));
  return invalid_argument(std::to_string(std::max(tokens, copies)) + " tokens take " +
                              std::to_string(memory.total_bytes(std::max(tokens, copies))) +
                              " bytes of memory, " + std::to_string(usable) + " can be used",
                          fitting == 0 ? "this model's resident tensors alone need more memory"
                                       : "give " + remedy + " or less");
}

// Copies the windows of `tokens` that choose_windows names, one after another.
std::vector<TokenWindow> take_windows(std::span<const std::int32_t> tokens, std::uint32_t context,
                                      std::uint64_t max_tokens, std::vector<std::int32_t>& taken) {
  std::vector<TokenWindow> windows;
  for (const TokenWindow& w : choose_windows(tokens.size(), context, max_tokens)) {
    const auto of_text = tokens.subspan(w.first, w.count);
    windows.push_back({taken.size(), w.count});
    taken.insert(taken.end(), of_text.begin(), of_text.end());
  }
  return windows;
}

// Of all that is in memory at once.
std::uint64_t most_tokens(const Job& job) {
  return std::max<std::uint64_t>(
      job.tokens.size(), response_tokens(job.model.config.num_layers, job.probe_tokens.size()));
}

Result<Job> prepare(const CalibrateOptions& options, std::span<const std::int32_t> tokens) {
  if (options.context == 0) return invalid_argument("the context must be at least 1");
  if (tokens.empty()) return invalid_argument("the text is empty", "give -f a text with words");
  Job job;
  MOE_ASSIGN_OR_RETURN(SelectedModel selected, open_selected_model(options));
  job.corpus.kernels = selected.kernels;
  job.model = std::move(selected.dir);
  const ModelConfig& config = job.model.config;
  MOE_RETURN_IF_ERROR(check_tokens(tokens, config.vocab_size));
  job.corpus.threads = options.threads;
  job.windows = take_windows(tokens, options.context, options.max_tokens, job.tokens);
  if (options.probe_tokens > 0) {
    job.probe_windows =
        take_windows(job.tokens, options.context, options.probe_tokens, job.probe_tokens);
  }
  job.corpus.context = 0;  // of the longest window
  for (const TokenWindow& w : job.windows) {
    job.corpus.context = std::max<std::uint64_t>(job.corpus.context, w.count);
  }
  const std::uint64_t count = job.tokens.size();
  CalibrateReport& report = job.report;
  report.text_tokens = tokens.size();
  report.windows = job.windows.size();
  const CorpusMemory memory = corpus_memory(job.model, job.corpus);
  report.memory_bytes = memory.total_bytes(most_tokens(job));
  const std::optional<std::uint64_t> available = available_memory_bytes();
  report.available_bytes = available.value_or(0);
  MOE_RETURN_IF_ERROR(check_memory(job, memory, available));
  report.layer_bytes = count * (2 * config.hidden_size + 6ULL * config.experts_per_token);
  report.needed_bytes =
      config.num_layers * report.layer_bytes + 2 * count * config.hidden_size * sizeof(float);
  report.free_bytes = free_space(options.output);
  report.manifest.model = directory_name(options.model);
  report.manifest.source_fingerprint = job.model.pack.source.fingerprint;
  report.manifest.residents_checksum = job.model.residents.checksum;
  report.manifest.num_layers = config.num_layers;
  report.manifest.num_experts = config.num_experts;
  report.manifest.experts_per_token = config.experts_per_token;
  report.manifest.hidden_size = config.hidden_size;
  report.manifest.expert_width = config.expert_width;
  report.manifest.tokens = count;
  report.manifest.context = options.context;
  MOE_ASSIGN_OR_RETURN(job.wanted, wanted_state(job, options));
  return job;
}

// Keeps what a layer's experts were given.
class Recorder {
 public:
  explicit Recorder(const CalibrationManifest& m) {
    layer_.tokens = m.tokens;
    layer_.hidden_size = m.hidden_size;
    layer_.experts_per_token = m.experts_per_token;
    layer_.inputs.reserve(m.tokens * m.hidden_size);
    layer_.experts.reserve(m.tokens * m.experts_per_token);
    layer_.weights.reserve(m.tokens * m.experts_per_token);
  }
  void add(const ExpertInputs& given) {
    for (const float value : given.inputs) layer_.inputs.push_back(f32_to_bf16(value));
    for (const Assignment& use : given.routing) {
      layer_.experts.push_back(static_cast<std::uint16_t>(use.expert));
      layer_.weights.push_back(use.weight);
    }
  }
  const LayerActivations& layer() const { return layer_; }

 private:
  LayerActivations layer_;
};

// Tokens times layers that measuring the response of the first `layers` takes.
std::uint64_t probe_work(const Job& job, std::uint64_t layers) {
  return job.probe_tokens.size() * layers * layers;
}

Status measure_response(Job& job, const std::function<void(const CalibrateProgress&)>& progress) {
  CalibrationManifest& m = job.report.manifest;
  if (job.probe_tokens.empty()) return Status::ok();
  const auto tell = [&](std::uint32_t layers) {
    if (!progress) return;
    progress({.tokens_done = m.num_layers * m.tokens + probe_work(job, layers),
              .tokens_total = m.num_layers * m.tokens + probe_work(job, m.num_layers),
              .layers_done = layers,
              .layers_total = m.num_layers,
              .is_response = true});
  };
  MOE_ASSIGN_OR_RETURN(m.response,
                       measure_divergence_response(job.model, job.corpus, job.probe_tokens,
                                                   job.probe_windows, tell));
  return Status::ok();
}

class Calibrator {
 public:
  Calibrator(Job& job, CorpusForward& corpus, CalibrationOutput& output,
             const std::function<void(const CalibrateProgress&)>& progress)
      : job_(job), corpus_(corpus), output_(output), progress_(progress) {}

  Status run() {
    const CalibrationManifest& m = job_.report.manifest;
    const auto done = static_cast<std::uint32_t>(output_.state().layers.size());
    if (done < m.num_layers) MOE_RETURN_IF_ERROR(begin(done));
    for (std::uint32_t layer = done; layer < m.num_layers; ++layer) {
      MOE_RETURN_IF_ERROR(run_layer(layer));
    }
    job_.report.manifest.layers = output_.state().layers;
    return Status::ok();
  }

 private:
  Status begin(std::uint32_t layers_done) {
    if (layers_done == 0) return corpus_.start(job_.tokens, job_.windows);
    corpus_.resume(job_.tokens.size(), job_.windows);
    return output_.read_residual(corpus_.hidden());
  }

  Status run_layer(std::uint32_t layer) {
    const CalibrationManifest& m = job_.report.manifest;
    tell(layer, 0, 0);
    MOE_ASSIGN_OR_RETURN(CalibrationLayer entry, record(layer));
    std::uint64_t uses = 0;
    MOE_RETURN_IF_ERROR(corpus_.add_experts(layer, [&](std::size_t count) {
      uses += count;
      tell(layer, m.tokens, uses / m.experts_per_token);
    }));
    const bool last = layer + 1 == m.num_layers;
    const std::span<const float> hidden = corpus_.hidden();
    MOE_RETURN_IF_ERROR(output_.add_layer(std::move(entry), last ? hidden.first(0) : hidden));
    tell(layer + 1, 0, 0);
    return Status::ok();
  }

  Result<CalibrationLayer> record(std::uint32_t layer) {
    const CalibrationManifest& m = job_.report.manifest;
    Recorder recorder(m);
    const bool is_dense = !has_experts(job_.model.config.layers[layer]);
    MOE_RETURN_IF_ERROR(corpus_.mix(layer, [&](const ExpertInputs& given) {
      if (!is_dense) recorder.add(given);
      tell(layer, given.first_token + given.tokens, 0);
      return Status::ok();
    }));
    if (is_dense) return CalibrationLayer{};
    return write_layer_activations(output_.path(), layer, m.num_experts, recorder.layer());
  }

  // The mixer counts for half of a token, its experts for the other half.
  void tell(std::uint32_t layer, std::uint64_t mixed, std::uint64_t computed) {
    if (!progress_) return;
    const CalibrationManifest& m = job_.report.manifest;
    progress_({.tokens_done = layer * m.tokens + (mixed + computed) / 2,
               .tokens_total = m.num_layers * m.tokens + probe_work(job_, m.num_layers),
               .layers_done = layer,
               .layers_total = m.num_layers,
               .is_response = false});
  }

  Job& job_;
  CorpusForward& corpus_;
  CalibrationOutput& output_;
  const std::function<void(const CalibrateProgress&)>& progress_;
};

Status record_layers(Job& job, CalibrationOutput& output,
                     const std::function<void(const CalibrateProgress&)>& progress) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusForward> corpus,
                       CorpusForward::open(job.model, job.corpus));
  const Status status = Calibrator(job, *corpus, output, progress).run();
  job.report.read_bytes = corpus->expert_stats().bytes_read;
  job.report.kernels = corpus->kernels_name();
  return status;
}

}  // namespace

std::vector<TokenWindow> choose_windows(std::uint64_t tokens, std::uint32_t context,
                                        std::uint64_t max_tokens) {
  std::vector<TokenWindow> windows;
  const std::uint64_t whole = tokens / context;
  const std::uint64_t wanted = max_tokens == 0 ? tokens : std::min(tokens, max_tokens);
  const std::uint64_t count = div_up(wanted, context);
  for (std::uint64_t i = 0; i < count; ++i) {
    // All of them: one after another, the short one at the end of the text included.
    const std::uint64_t place = count >= whole ? i : i * whole / count;
    windows.push_back({place * context, std::min<std::uint64_t>(context, wanted - i * context)});
  }
  return windows;
}

Result<CalibrateReport> plan_calibration(const CalibrateOptions& options,
                                         std::span<const std::int32_t> tokens) {
  MOE_ASSIGN_OR_RETURN(Job job, prepare(options, tokens));
  MOE_ASSIGN_OR_RETURN(const std::size_t resumed,
                       CalibrationOutput::check(options.output, job.wanted, options.restart));
  job.report.layers_resumed = static_cast<std::uint32_t>(resumed);
  job.report.kernels = job.corpus.kernels->name;
  CalibrateReport& report = job.report;
  const auto layers_left = static_cast<std::uint32_t>(report.manifest.num_layers - resumed);
  MOE_ASSIGN_OR_RETURN(
      const CalibrateEstimate estimate,
      estimate_calibration(job.model, job.corpus,
                           std::span(job.tokens).first(job.windows.front().count),
                           {.tokens = report.manifest.tokens,
                            .layers_left = layers_left,
                            .probe_work = probe_work(job, report.manifest.num_layers)}));
  report.estimated_seconds = estimate.seconds;
  report.total_bytes = static_cast<std::uint64_t>(estimate.compressed_share *
                                                  static_cast<double>(report.manifest.num_layers) *
                                                  static_cast<double>(report.layer_bytes));
  return std::move(job.report);
}

Result<CalibrateReport> calibrate(const CalibrateOptions& options,
                                  std::span<const std::int32_t> tokens,
                                  const std::function<void(const CalibrateProgress&)>& progress) {
  const Clock::time_point start = Clock::now();
  MOE_ASSIGN_OR_RETURN(Job job, prepare(options, tokens));
  MOE_ASSIGN_OR_RETURN(CalibrationOutput output,
                       CalibrationOutput::take(options.output, job.wanted, options.restart));
  CalibrateReport& report = job.report;
  report.layers_resumed = static_cast<std::uint32_t>(output.state().layers.size());
  MOE_RETURN_IF_ERROR(check_space_at(options.output, report));
  Status status = record_layers(job, output, progress);
  if (status.is_ok()) status = measure_response(job, progress);
  if (status.is_ok()) status = output.finish(report.manifest);
  if (!status.is_ok()) {
    // Finished layers stay: what is wrong with a later one may be repaired. Without any, wrong
    // inputs stay wrong.
    const bool has_layers = !output.state().layers.empty();
    if (status.code() != StatusCode::kIo && !has_layers) output.discard();
    return status;
  }
  for (const CalibrationLayer& layer : report.manifest.layers) {
    report.total_bytes += layer.file_size;
  }
  report.seconds = seconds_since(start);
  return std::move(report);
}

}  // namespace moepack
