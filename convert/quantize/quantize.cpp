#include "convert/quantize/quantize.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <system_error>

#include "convert/job/journal.h"
#include "convert/job/output_directory.h"
#include "convert/job/parallel.h"
#include "convert/job/read_back.h"
#include "convert/job/unfinished_layers.h"
#include "convert/quantize/quantize_estimate.h"
#include "convert/quantize/quantize_layer.h"
#include "convert/quantize/quantize_plan.h"
#include "convert/report/pack_report.h"
#include "convert/report/pack_summary.h"
#include "formats/base/elapsed.h"
#include "formats/base/json_fields.h"
#include "formats/base/space.h"
#include "formats/flashmoe/flashmoe_pack.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// Threads that pay: one expert each.
std::size_t thread_count_for(const QuantizeOptions& options, const QuantizePlan& plan) {
  return std::min<std::size_t>(bounded_thread_count(options.threads), plan.pack.num_experts);
}

// Names the experts with few tokens, fewest first.
void name_starved(std::span<const std::vector<std::uint64_t>> samples_of_layers,
                  QuantizeReport& report) {
  std::vector<std::pair<std::uint64_t, std::string>> found;
  for (std::size_t l = 0; l < samples_of_layers.size(); ++l) {
    const std::vector<std::uint64_t>& samples = samples_of_layers[l];
    for (std::size_t e = 0; e < samples.size(); ++e) {
      if (samples[e] >= kStarvedTokens) continue;
      found.emplace_back(samples[e], "layer " + std::to_string(l) + " expert " + std::to_string(e) +
                                         ": " + std::to_string(samples[e]) +
                                         (samples[e] == 1 ? " token" : " tokens"));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [count, text] : found) report.starved.push_back(std::move(text));
}

// Beforehand, where the calibration tells without being read.
void name_starved(const QuantizePlan& plan, QuantizeReport& report) {
  std::vector<std::vector<std::uint64_t>> samples;
  for (std::uint32_t l = 0; plan.calibration != nullptr && l < plan.pack.num_layers; ++l) {
    samples.push_back(plan.calibration->samples(l));
  }
  name_starved(samples, report);
}

// Afterwards, of the layers that are done.
void name_starved(const QualityLedger& ledger, QuantizeReport& report) {
  std::vector<std::vector<std::uint64_t>> samples;
  for (const LayerQuality& layer : ledger.layers) {
    samples.resize(layer.layer + 1);
    samples[layer.layer] = layer.samples;
  }
  name_starved(samples, report);
}

QuantizeReport report_of(const QuantizeOptions& options, const QuantizePlan& plan) {
  QuantizeReport report;
  report.pack = plan.directory.filename().string();
  report.source = plan.weights.description();
  if (plan.calibration != nullptr) report.calibration = plan.calibration->description();
  report.formats = pack_formats(plan.pack);
  report.bits_per_weight = pack_bits_per_weight(plan.pack);
  report.num_layers = plan.pack.num_layers;
  report.num_experts = plan.pack.num_experts;
  report.all_experts = plan.pack.all_experts();
  report.records_reused = std::accumulate(plan.reused.begin(), plan.reused.end(), std::uint64_t{0});
  report.expert_size = plan.pack.layouts.front().record_bytes;
  report.pack_bytes = plan.pack_bytes;
  report.needed_bytes = plan.total_bytes;
  report.free_bytes = free_space(options.model);
  report.threads = thread_count_for(options, plan);
  report.memory_bytes = report.threads * plan.worker_bytes;
  if (plan.calibration != nullptr) report.memory_bytes += plan.calibration->layer_bytes();
  report.notes = plan.notes;
  for (const std::string& note : plan.reuse.notes()) report.notes.push_back(note);
  name_starved(plan, report);
  return report;
}

std::string describe(const QuantizeOptions& options, const QuantizePlan& plan) {
  return std::string(quant_method_name(options.method)) + " " + pack_formats(plan.pack) + " of " +
         plan.pack.source.name;
}

// True: `journal` is of this quantization; false: one has to be started.
Result<bool> is_continued(const QuantizeOptions& options, const QuantizePlan& plan,
                          const ConversionJournal& journal) {
  if (journal.is_empty()) return false;
  if (journal.plan() == plan.digest) return true;
  if (options.restart) return false;
  const std::string there = plan.directory.string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = there},
                    "holds an interrupted quantization, " + printable(journal.what()) +
                        ", with another source, calibration or other options",
                    "give the same ones to continue it, --restart to drop it, or another --name");
}

std::uint64_t space_needed(const QuantizeOptions& options, const QuantizePlan& plan,
                           const ConversionJournal& journal) {
  std::uint64_t bytes = plan.total_bytes - plan.pack_bytes;
  for (std::uint32_t l : unfinished_layers(plan.pack, options.layers, journal)) {
    bytes += plan.pack.layers[l].file_size;
  }
  return bytes;
}

// What a run would find, told by the journal and the sizes of files alone.
Result<ConversionJournal> foreseen_journal(const QuantizeOptions& options,
                                           const QuantizePlan& plan) {
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal,
                       ConversionJournal::look(plan.directory / kUnfinishedMarker));
  MOE_ASSIGN_OR_RETURN(const bool continued, is_continued(options, plan, journal));
  if (!continued) return ConversionJournal();
  forget_missing_layers(plan.directory, plan.pack, journal);
  return journal;
}

// One quantization under way.
class Quantization {
 public:
  Quantization(const QuantizeOptions& options, QuantizePlan& plan, OutputDirectory& output,
               ConversionJournal journal)
      : options_(options),
        plan_(plan),
        output_(output),
        journal_(std::move(journal)),
        qualities_(plan.pack.num_layers) {}

  Status prepare();
  Status run(const ProgressCallback& callback);
  std::uint64_t space_needed() const { return moepack::space_needed(options_, plan_, journal_); }
  std::size_t layers_resumed() const { return layers_resumed_; }
  std::size_t layers_left() const { return plan_.pack.expert_layers() - journal_.layers_done(); }
  QualityLedger ledger() const;

 private:
  fs::path quality_path(std::uint32_t layer) const {
    return output_.path() / quality_file_name(layer);
  }
  bool take_layer(std::uint32_t layer);
  bool take_quality(std::uint32_t layer);
  std::vector<std::uint32_t> layers_to_do() const {
    return unfinished_layers(plan_.pack, options_.layers, journal_);
  }
  QualityLedger ledger_of(std::vector<LayerQuality> layers) const;
  Status run_layer(std::uint32_t layer, ProgressCounter& progress);
  Status write_manifest();

  const QuantizeOptions& options_;
  QuantizePlan& plan_;
  OutputDirectory& output_;
  ConversionJournal journal_;
  std::vector<LayerQuality> qualities_;  // [layers]; those that are done
  std::size_t layers_resumed_ = 0;
};

bool Quantization::take_quality(std::uint32_t l) {
  const fs::path path = quality_path(l);
  const auto text = read_text_file(path, std::uint64_t{64} << 20);
  if (!text.is_ok()) return false;
  auto report = parse_pack_report(text.value(), path.string());
  if (!report.is_ok() || !report.value().ledger.has_value()) return false;
  std::vector<LayerQuality>& layers = report.value().ledger->layers;
  if (layers.empty() && plan_.reused[l] > 0) {
    qualities_[l] = {.layer = l, .samples = {}, .projections = {}};
    return true;
  }
  if (layers.size() != 1 || layers.front().layer != l) return false;
  qualities_[l] = std::move(layers.front());
  return true;
}

bool Quantization::take_layer(std::uint32_t l) {
  return take_quality(l) &&
         take_layer_file(output_.path(), plan_.pack, l, *journal_.layer_checksums(l),
                         bounded_thread_count(options_.threads));
}

// Takes over what an earlier run finished and reads back whole, and removes the rest.
Status Quantization::prepare() {
  MOE_ASSIGN_OR_RETURN(const bool continued, is_continued(options_, plan_, journal_));
  if (!continued) {
    MOE_RETURN_IF_ERROR(
        journal_.start(WorkKind::kQuantization, plan_.digest, describe(options_, plan_)));
  }
  std::set<fs::path> kept;
  for (std::uint32_t l = 0; l < plan_.pack.num_layers; ++l) {
    if (journal_.layer_checksums(l) == nullptr) continue;
    if (!take_layer(l)) {
      journal_.forget_layer(l);
      continue;
    }
    kept.insert(output_.path() / plan_.pack.layers[l].file);
    kept.insert(quality_path(l));
  }
  layers_resumed_ = journal_.layers_done();
  return output_.keep_only(kept);
}

QualityLedger Quantization::ledger_of(std::vector<LayerQuality> layers) const {
  QualityLedger ledger;
  ledger.error = plan_.calibration != nullptr ? QuantError::kOutput : QuantError::kWeight;
  ledger.layers = std::move(layers);
  return ledger;
}

QualityLedger Quantization::ledger() const {
  std::vector<LayerQuality> done;
  for (std::uint32_t l = 0; l < plan_.pack.num_layers; ++l) {
    const bool is_there = journal_.layer_checksums(l) != nullptr && qualities_[l].is_known();
    if (is_there) done.push_back(qualities_[l]);
  }
  return ledger_of(std::move(done));
}

Status Quantization::run_layer(std::uint32_t l, ProgressCounter& progress) {
  const std::size_t threads = thread_count_for(options_, plan_);
  LayerJob job{.weights = plan_.weights,
               .statistics = nullptr,
               .reuse = plan_.reuse,
               .method = options_.method,
               .error = ledger_of({}).error,
               .samples = {},
               .layer = l,
               .activation = expert_activation(plan_.config, l)};
  std::unique_ptr<LayerStatistics> statistics;
  if (plan_.calibration != nullptr) {
    job.samples = plan_.calibration->samples(l);
    const bool needed = plan_.reused[l] < plan_.pack.num_experts || job.samples.empty();
    if (needed) {
      MOE_ASSIGN_OR_RETURN(statistics, plan_.calibration->layer(l, threads));
      job.statistics = statistics.get();
      job.samples.resize(plan_.pack.num_experts);
      for (std::uint32_t e = 0; e < plan_.pack.num_experts; ++e) {
        job.samples[e] = statistics->samples(e);
      }
    }
  }
  MOE_ASSIGN_OR_RETURN(AtomicFile file, quantize_layer(job, output_.path(), threads, plan_.pack,
                                                       qualities_[l], progress));
  MOE_RETURN_IF_ERROR(file.commit());
  std::vector<LayerQuality> known;
  if (qualities_[l].is_known()) known.push_back(qualities_[l]);
  MOE_RETURN_IF_ERROR(write_text_file(
      quality_path(l),
      "{\"report\": {\"ledger\": " + ledger_json(ledger_of(std::move(known))) + "}}\n"));
  std::vector<std::uint64_t> sums;
  for (const ExpertEntry& expert : plan_.pack.layers[l].experts) sums.push_back(expert.checksum);
  MOE_RETURN_IF_ERROR(journal_.add_layer(l, std::move(sums)));
  progress.layer_done();
  return Status::ok();
}

Status Quantization::write_manifest() {
  std::string notes;
  for (const std::string& note : plan_.notes) {
    notes += (notes.empty() ? "" : ", ") + json_quote(note);
  }
  // As read back, so that a continued quantization writes the same text.
  QualityLedger ledger = this->ledger();
  // With records of unknown origin the pack has no recipe: nobody may take them for its own.
  const bool is_pure = plan_.reuse.named_text().empty();
  const std::string recipe =
      is_pure ? "\"recipe\": " + json_quote(checksum_text(plan_.recipe)) + ",\n" : "";
  plan_.pack.report_json =
      "{" + recipe + "\"notes\": [" + notes + "],\n\"ledger\": " + ledger_json(ledger) + "}";
  const std::string tiers =
      options_.expert_bits.has_value() ? flashmoe_tiered_text(plan_.pack) : "";
  if (!tiers.empty()) {
    MOE_RETURN_IF_ERROR(write_text_file(output_.path() / kTieredManifestName, tiers));
  }
  if (!options_.hot_experts.empty()) {
    MOE_RETURN_IF_ERROR(write_text_file(output_.path() / kHotExpertsName, options_.hot_experts));
  }
  return write_pack_manifest(output_.path(), plan_.pack);
}

Status Quantization::run(const ProgressCallback& callback) {
  // What is finished stays, whatever ends this run.
  output_.keep();
  ConvertProgress start;
  start.layers_total = plan_.pack.expert_layers();
  start.layers_done = static_cast<std::uint32_t>(layers_resumed_);
  for (std::uint32_t l : layers_to_do()) {
    for (std::uint32_t e = 0; e < plan_.pack.num_experts; ++e) {
      start.bytes_total += plan_.weights.bytes(l, e);
    }
  }
  ProgressCounter progress(start, callback);
  for (std::uint32_t l : layers_to_do()) {
    Status status = run_layer(l, progress);
    if (status.is_ok()) continue;
    if (journal_.layers_done() == 0) output_.discard();
    return status;
  }
  if (layers_left() > 0) return Status::ok();
  MOE_RETURN_IF_ERROR(write_manifest());
  MOE_RETURN_IF_ERROR(journal_.add_completion());
  return output_.finish();
}

Result<QuantizeReport> report_of_finished(const QuantizePlan& plan, QuantizeReport report) {
  MOE_ASSIGN_OR_RETURN(PackReport written, read_pack_report(plan.directory));
  if (written.ledger.has_value()) {
    report.ledger = std::move(*written.ledger);
    report.quality = summarize_quality(report.ledger, plan.pack, 0);
  }
  report.layers_resumed = plan.pack.expert_layers();
  report.finished = true;
  return report;
}

}  // namespace

Result<QuantizeReport> plan_quantization(const QuantizeOptions& options) {
  MOE_ASSIGN_OR_RETURN(const QuantizePlan plan, make_quantize_plan(options));
  MOE_RETURN_IF_ERROR(OutputDirectory::check(plan.directory, OutputKind::kPack).status());
  MOE_ASSIGN_OR_RETURN(const ConversionJournal journal, foreseen_journal(options, plan));
  QuantizeReport report = report_of(options, plan);
  report.needed_bytes = space_needed(options, plan, journal);
  MOE_RETURN_IF_ERROR(check_blas_memory(report.threads, report.memory_bytes));
  report.estimated_seconds = estimate_quantize_seconds(plan, options, report.threads);
  return report;
}

Result<QuantizeReport> quantize_model(const QuantizeOptions& options,
                                      const ProgressCallback& progress) {
  const auto start = Clock::now();
  MOE_ASSIGN_OR_RETURN(QuantizePlan plan, make_quantize_plan(options));
  QuantizeReport report = report_of(options, plan);
  MOE_RETURN_IF_ERROR(check_blas_memory(report.threads, report.memory_bytes));
  MOE_ASSIGN_OR_RETURN(OutputDirectory output,
                       OutputDirectory::take(plan.directory, OutputKind::kPack));
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal,
                       ConversionJournal::open(output.marker_fd(), output.marker_path().string()));
  // Killed between the last manifest and the removal of the marker.
  if (journal.is_complete() && journal.plan() == plan.digest) {
    MOE_RETURN_IF_ERROR(output.finish());
    return report_of_finished(plan, std::move(report));
  }
  Quantization quantization(options, plan, output, std::move(journal));
  MOE_RETURN_IF_ERROR(quantization.prepare());
  report.layers_resumed = quantization.layers_resumed();
  report.needed_bytes = quantization.space_needed();
  report.free_bytes = free_space(options.model);
  MOE_RETURN_IF_ERROR(check_space(plan.directory, "the pack", report.needed_bytes,
                                  report.free_bytes, "free some space"));
  MOE_RETURN_IF_ERROR(quantization.run(progress));
  report.layers_left = quantization.layers_left();
  report.finished = report.layers_left == 0;
  report.ledger = quantization.ledger();
  report.quality = summarize_quality(report.ledger, plan.pack, 0);
  if (report.starved.empty()) name_starved(report.ledger, report);
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace moepack
