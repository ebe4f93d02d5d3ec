#include "convert/pack/conversion.h"

#include <algorithm>
#include <future>
#include <system_error>

#include "convert/job/parallel.h"
#include "convert/job/read_back.h"
#include "convert/job/unfinished_layers.h"
#include "convert/pack/prediction.h"
#include "convert/pack/resident.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// Everything that decides about the bytes of finished files: the source's headers, the options, the
// companions. Not the source's name, so that it may be moved between runs.
Result<std::uint64_t> plan_digest(const ConvertPlan& plan) {
  PackManifest pack = plan.pack;
  ResidentManifest resident = plan.resident;
  pack.source.name.clear();
  pack.report_json.clear();
  resident.model.clear();
  std::string text = pack_manifest_text(pack) + resident_manifest_text(resident);
  if (!plan.prediction.is_empty()) {
    PredictionManifest prediction = plan.prediction;
    prediction.source.clear();
    text += prediction_manifest_text(prediction);
  }
  for (const Companion& companion : plan.companions) {
    std::uint64_t sum = checksum(std::as_bytes(std::span(companion.text)));
    if (!companion.file.empty()) {
      MOE_ASSIGN_OR_RETURN(sum, checksum_of_file(companion.file));
    }
    text += companion.name + " " + checksum_text(sum) + "\n";
  }
  return checksum(std::as_bytes(std::span(text)));
}

std::string describe(const ConvertPlan& plan) {
  const ExpertLayout& usual = plan.pack.layouts.front();
  return plan.pack.source.name + " (experts " + to_string(usual.of(Projection::kGate).format) +
         ", pages of " + std::to_string(plan.pack.page_size) + ")";
}

// Shards may only be missing where the journal says that they were packed.
Status check_missing_shards(const ModelSource& source, const ConversionJournal& journal,
                            const fs::path& output) {
  if (source.checkpoint() == nullptr) return Status::ok();
  for (const auto& shard : source.checkpoint()->shards()) {
    const std::string name = fs::path(shard->file().path()).filename().string();
    if (shard->has_data() || journal.removed_shards().contains(name)) continue;
    return corrupt(Where{.file = output.string()},
                   "source shard " + printable(name) + " is gone, and the journal (" +
                       kUnfinishedMarker + ") does not say that it was packed",
                   "download that shard again; nothing was changed here");
  }
  return Status::ok();
}

// True: `journal` is of the plan with this digest; false: one has to be started. What belongs to
// someone else only an explicit wish removes.
Result<bool> is_continued(const ConversionJournal& journal, std::uint64_t digest, bool restart,
                          const fs::path& output) {
  if (journal.is_empty()) return false;
  if (journal.plan() == digest) return true;
  const std::string there = output.string();
  const std::string what = "holds an interrupted conversion of " + printable(journal.what()) +
                           ", with another source or other options";
  if (!journal.removed_shards().empty()) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = there},
                      what + ", and shards of that source were already removed",
                      "continue it with the same source and options; it may be the only copy");
  }
  if (restart) return false;
  return make_error(StatusCode::kInvalidArgument, Where{.file = there}, what,
                    "give the same source and options to continue it, --restart to drop it, or "
                    "name another output directory");
}

// What is left to write, in order; nothing is left of finished units, whose shards are free.
std::vector<ShardReclaimer::Step> steps_left(const ConvertPlan& plan, const ConvertOptions& options,
                                             const ConversionJournal& journal) {
  std::vector<ShardReclaimer::Step> steps;
  // The small files first, with what the journal and the file system's own records take.
  steps.push_back({plan.pack.num_layers,
                   plan.total_bytes - plan.expert_bytes - plan.resident_bytes -
                       plan.prediction.data_size +
                       (journal.resident_checksum().has_value() ? 0 : plan.resident_bytes)});
  steps.push_back({ShardReclaimer::prediction_unit(plan.pack.num_layers),
                   journal.prediction_checksums() != nullptr ? 0 : plan.prediction.data_size});
  for (std::uint32_t l = 0; l < plan.pack.num_layers; ++l) {
    if (journal.layer_checksums(l) != nullptr) steps.push_back({l, 0});
  }
  for (std::uint32_t l : unfinished_layers(plan.pack, options.layers, journal)) {
    steps.push_back({l, plan.pack.layers[l].file_size});
  }
  return steps;
}

std::uint64_t sum_of(const std::vector<ShardReclaimer::Step>& steps) {
  std::uint64_t sum = 0;
  for (const ShardReclaimer::Step& step : steps) sum += step.bytes;
  return sum;
}

Status check_layers(const ConvertPlan& plan, const ConvertOptions& options) {
  for (std::uint32_t layer : options.layers) {
    MOE_RETURN_IF_ERROR(check_layer_exists(layer, plan.pack.num_layers));
  }
  return Status::ok();
}

bool has_size(const fs::path& file, std::uint64_t size) {
  std::error_code error;
  return fs::file_size(file, error) == size && !error;
}

}  // namespace

// A layer file that is written but not yet durable.
struct Conversion::Commit {
  std::uint32_t layer = 0;
  std::vector<std::string> not_finite;
  std::future<Status> result;

  static Commit start(std::uint32_t layer, std::vector<std::string> not_finite, AtomicFile file) {
    auto shared = std::make_shared<AtomicFile>(std::move(file));
    const auto work = [shared] { return shared->commit(); };
    try {
      return {layer, std::move(not_finite), std::async(std::launch::async, work)};
    } catch (const std::system_error&) {
      return {layer, std::move(not_finite), std::async(std::launch::deferred, work)};
    }
  }
};

Result<std::unique_ptr<Conversion>> Conversion::prepare(ModelSource& source, ConvertPlan& plan,
                                                        const ConvertOptions& options,
                                                        OutputDirectory& output) {
  MOE_RETURN_IF_ERROR(check_layers(plan, options));
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal,
                       ConversionJournal::open(output.marker_fd(), output.marker_path().string()));
  std::unique_ptr<Conversion> conversion(
      new Conversion(source, plan, options, output, std::move(journal)));
  MOE_RETURN_IF_ERROR(conversion->open_journal());
  conversion->take_finished();
  MOE_RETURN_IF_ERROR(conversion->check_same_weights());
  MOE_RETURN_IF_ERROR(conversion->remove_unfinished());
  if (options.reclaim) MOE_RETURN_IF_ERROR(conversion->start_reclaiming());
  return conversion;
}

Result<std::uint64_t> Conversion::foresee(const ModelSource& source, const ConvertPlan& plan,
                                          const ConvertOptions& options) {
  MOE_RETURN_IF_ERROR(check_layers(plan, options));
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal,
                       ConversionJournal::look(options.output / kUnfinishedMarker));
  MOE_RETURN_IF_ERROR(check_missing_shards(source, journal, options.output));
  if (!journal.is_empty()) {  // a digest takes the manifests' whole text
    MOE_ASSIGN_OR_RETURN(const std::uint64_t digest, plan_digest(plan));
    MOE_ASSIGN_OR_RETURN(const bool continued,
                         is_continued(journal, digest, options.restart, options.output));
    if (!continued) journal = ConversionJournal();
  }
  forget_missing_layers(options.output / kDefaultPackName, plan.pack, journal);
  if (!has_size(options.output / kResidentDataName, plan.resident.data_size)) {
    journal.forget_resident();
  }
  const std::vector<ShardReclaimer::Step> steps = steps_left(plan, options, journal);
  if (!options.reclaim) return sum_of(steps);
  MOE_ASSIGN_OR_RETURN(
      const ShardReclaimer reclaimer,
      ShardReclaimer::create(*source.checkpoint(), plan, existing_parent(options.output)));
  return reclaimer.space_needed(steps);
}

bool Conversion::is_source_incomplete() const {
  if (source_.checkpoint() == nullptr) return false;
  const std::span<const SafetensorsFile* const> shards = source_.checkpoint()->shards();
  return std::any_of(shards.begin(), shards.end(),
                     [](const auto& shard) { return !shard->has_data(); });
}

Status Conversion::start_journal() {
  keeps_headers_ = false;
  return journal_.start(WorkKind::kConversion, digest_, describe(plan_));
}

Status Conversion::open_journal() {
  MOE_ASSIGN_OR_RETURN(digest_, plan_digest(plan_));
  MOE_RETURN_IF_ERROR(check_missing_shards(source_, journal_, output_.path()));
  MOE_ASSIGN_OR_RETURN(const bool continued,
                       is_continued(journal_, digest_, options_.restart, output_.path()));
  return continued ? Status::ok() : start_journal();
}

// Both take over recorded files that read back as they were written; false: make them again.
bool Conversion::take_residents() {
  const fs::path file = output_.path() / kResidentDataName;
  const auto recorded = journal_.resident_checksum();
  if (!has_size(file, plan_.resident.data_size)) return false;
  const Result<std::uint64_t> found = checksum_of_file_on_disk(file);
  if (!found.is_ok() || found.value() != recorded) return false;
  plan_.resident.checksum = *recorded;
  return true;
}

bool Conversion::take_layer(std::uint32_t l) {
  return take_layer_file(output_.path() / kDefaultPackName, plan_.pack, l,
                         *journal_.layer_checksums(l), bounded_thread_count(options_.threads));
}

void Conversion::take_finished() {
  if (journal_.resident_checksum().has_value() && !take_residents()) journal_.forget_resident();
  if (const auto* sums = journal_.prediction_checksums(); sums != nullptr) {
    const bool is_there = take_prediction_data(output_.path(), plan_.prediction, *sums,
                                               bounded_thread_count(options_.threads));
    if (!is_there) journal_.forget_prediction();
  }
  for (std::uint32_t l = 0; l < plan_.pack.num_layers; ++l) {
    if (journal_.layer_checksums(l) != nullptr && !take_layer(l)) journal_.forget_layer(l);
  }
  layers_resumed_ = journal_.layers_done();
}

// All but the files taken over; where shards of the source are gone, only temporary ones.
Status Conversion::remove_unfinished() {
  if (is_source_incomplete()) return output_.remove_temporary_files();
  std::set<fs::path> kept;
  if (journal_.resident_checksum().has_value()) kept.insert(output_.path() / kResidentDataName);
  if (journal_.prediction_checksums() != nullptr) {
    kept.insert(output_.path() / kPredictionDataName);
  }
  for (std::uint32_t l = 0; l < plan_.pack.num_layers; ++l) {
    if (journal_.layer_checksums(l) == nullptr) continue;
    kept.insert(output_.path() / kDefaultPackName / plan_.pack.layers[l].file);
  }
  std::error_code error;
  const fs::path headers = output_.path() / kSavedHeadersDirectory;
  fs::directory_iterator at(headers, error);
  for (; keeps_headers_ && !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->path().extension() != ".tmp") kept.insert(at->path());
  }
  return output_.keep_only(kept);
}

// A source that was replaced by one of the same shape has the same digest. So the first expert of
// every finished layer is packed once more, where its shard is still there, and compared.
Status Conversion::check_same_weights() {
  if (layers_resumed_ == 0) return Status::ok();
  MOE_ASSIGN_OR_RETURN(AtomicFile scratch, AtomicFile::create_unnamed(output_.path()));
  PackWorker worker;
  for (std::uint32_t l = 0; l < plan_.pack.num_layers; ++l) {
    if (journal_.layer_checksums(l) == nullptr || !plan_.experts.has_data(l, 0)) continue;
    MOE_ASSIGN_OR_RETURN(
        const std::uint64_t sum,
        write_record(plan_.experts, plan_.pack.layout_of(l, 0), l, 0, scratch, 0, worker));
    if (sum == plan_.pack.layers[l].experts[0].checksum) continue;
    if (options_.restart && journal_.removed_shards().empty()) {
      layers_resumed_ = 0;
      return start_journal();
    }
    return make_error(StatusCode::kInvalidArgument, Where{.file = output_.path().string()},
                      "layer " + std::to_string(l) +
                          " was packed from other weights: the source has changed since",
                      "--restart drops what is there, or name another output directory");
  }
  return Status::ok();
}

Status Conversion::start_reclaiming() {
  MOE_ASSIGN_OR_RETURN(const fs::path headers, output_.add_directory(kSavedHeadersDirectory));
  MOE_ASSIGN_OR_RETURN(reclaimer_,
                       ShardReclaimer::create(*source_.checkpoint(), plan_, output_.path()));
  reclaimer_->allow_removal(*source_.checkpoint(), journal_);
  return reclaimer_->save_headers(headers);
}

std::vector<std::string> Conversion::removed_shards() const {
  return reclaimer_.has_value() ? reclaimer_->removed() : std::vector<std::string>();
}

std::vector<std::string> Conversion::never_removed_shards() const {
  return reclaimer_.has_value() ? reclaimer_->never_removed() : std::vector<std::string>();
}

std::vector<std::uint32_t> Conversion::layers_to_do() const {
  return unfinished_layers(plan_.pack, options_.layers, journal_);
}

std::uint64_t Conversion::space_needed() const {
  const std::vector<ShardReclaimer::Step> steps = steps_left(plan_, options_, journal_);
  return reclaimer_.has_value() ? reclaimer_->space_needed(steps) : sum_of(steps);
}

ConvertProgress Conversion::starting_point() const {
  ConvertProgress start;
  start.layers_total = plan_.pack.expert_layers();
  start.layers_done = static_cast<std::uint32_t>(layers_resumed_);
  if (!journal_.resident_checksum().has_value()) {
    for (const SourceMatrix& source : plan_.resident_sources) start.bytes_total += source.bytes();
  }
  if (journal_.prediction_checksums() == nullptr) {
    for (const SourceTensor& source : plan_.prediction_sources) start.bytes_total += source.size();
  }
  for (std::uint32_t l : layers_to_do()) {
    for (std::uint32_t e = 0; e < plan_.pack.experts_of(l); ++e) {
      start.bytes_total += plan_.experts.bytes(l, e);
    }
  }
  return start;
}

Status Conversion::run(const ProgressCallback& callback) {
  // Whatever ends this run, what is finished stays, but for the one case below.
  output_.keep();
  const bool is_first = layers_resumed_ == 0;
  Status status = write_everything(callback);
  if (status.is_ok()) return status;
  const bool recorded = journal_.layers_done() > 0 || journal_.resident_checksum().has_value();
  const bool is_source_at_fault =
      status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kUnsupported;
  const bool source_is_whole = journal_.removed_shards().empty() && !is_source_incomplete();
  if (source_is_whole && is_first && (is_source_at_fault || !recorded)) output_.discard();
  return status;
}

Status Conversion::write_everything(const ProgressCallback& callback) {
  ProgressCounter progress(starting_point(), callback);
  for (const Companion& companion : plan_.companions) {
    const fs::path path = output_.path() / companion.name;
    MOE_RETURN_IF_ERROR(companion.file.empty() ? write_text_file(path, companion.text)
                                               : copy_whole_file(companion.file, path));
  }
  MOE_RETURN_IF_ERROR(write_residents(progress));
  MOE_RETURN_IF_ERROR(write_prediction(progress));
  MOE_RETURN_IF_ERROR(write_layers(progress));
  if (layers_left() > 0) return Status::ok();
  MOE_RETURN_IF_ERROR(write_manifests());
  MOE_RETURN_IF_ERROR(journal_.add_completion());
  return output_.finish();
}

Status Conversion::write_residents(ProgressCounter& progress) {
  const fs::path data = output_.path() / kResidentDataName;
  if (!journal_.resident_checksum().has_value()) {
    MOE_RETURN_IF_ERROR(write_resident_data(plan_.resident_sources, output_.path(),
                                            bounded_thread_count(options_.threads), plan_.resident,
                                            progress, &not_finite_));
  }
  if (reclaimer_.has_value()) {
    MOE_ASSIGN_OR_RETURN(const std::uint64_t sum, checksum_of_file_on_disk(data));
    if (sum != plan_.resident.checksum) {
      return make_error(StatusCode::kIo, Where{.file = data.string()},
                        "reads back differently from what was written",
                        "the disk does not keep what is written to it");
    }
  }
  if (!journal_.resident_checksum().has_value()) {
    MOE_RETURN_IF_ERROR(journal_.add_resident(plan_.resident.checksum, not_finite_.take()));
  }
  return reclaimer_.has_value() ? reclaimer_->resident_done() : Status::ok();
}

Status Conversion::write_prediction(ProgressCounter& progress) {
  if (plan_.prediction.is_empty()) return Status::ok();
  if (journal_.prediction_checksums() == nullptr) {
    const std::size_t threads = bounded_thread_count(options_.threads);
    MOE_RETURN_IF_ERROR(write_prediction_data(plan_.prediction_sources, output_.path(), threads,
                                              plan_.prediction, progress));
    if (reclaimer_.has_value()) {
      MOE_RETURN_IF_ERROR(read_prediction_back(output_.path(), plan_.prediction, threads));
    }
    std::vector<std::uint64_t> sums;
    for (const PredictionTensor& tensor : plan_.prediction.tensors) sums.push_back(tensor.checksum);
    MOE_RETURN_IF_ERROR(journal_.add_prediction(std::move(sums)));
  }
  return reclaimer_.has_value() ? reclaimer_->prediction_done() : Status::ok();
}

// While a layer becomes durable in the background, the next one is converted; not so with
// --reclaim, where the space of its source may be needed for the next.
Status Conversion::write_layers(ProgressCounter& progress) {
  MOE_ASSIGN_OR_RETURN(const fs::path pack, output_.add_directory(kDefaultPackName));
  for (std::uint32_t l = 0; reclaimer_.has_value() && l < plan_.pack.num_layers; ++l) {
    if (journal_.layer_checksums(l) != nullptr) MOE_RETURN_IF_ERROR(reclaimer_->layer_done(l));
  }
  std::vector<PackWorker> workers(bounded_thread_count(options_.threads));
  for (PackWorker& worker : workers) worker.transcoder = Transcoder(&not_finite_);
  Commit commit;
  for (std::uint32_t l : layers_to_do()) {
    Result<AtomicFile> file =
        write_layer_file(plan_.experts, pack, l, workers, plan_.pack, progress);
    MOE_RETURN_IF_ERROR(settle(commit, progress));
    if (!file.is_ok()) return file.status();
    commit = Commit::start(l, not_finite_.take(), std::move(file).value());
    if (reclaimer_.has_value()) MOE_RETURN_IF_ERROR(settle(commit, progress));
  }
  return settle(commit, progress);
}

// Waits until the layer is durable and records it.
Status Conversion::settle(Commit& commit, ProgressCounter& progress) {
  if (!commit.result.valid()) return Status::ok();
  const std::uint32_t layer = commit.layer;
  MOE_RETURN_IF_ERROR(commit.result.get());
  if (reclaimer_.has_value()) {
    MOE_RETURN_IF_ERROR(check_layer_file(output_.path() / kDefaultPackName, plan_.pack, layer,
                                         bounded_thread_count(options_.threads)));
  }
  std::vector<std::uint64_t> sums;
  for (const ExpertEntry& expert : plan_.pack.layers[layer].experts) {
    sums.push_back(expert.checksum);
  }
  MOE_RETURN_IF_ERROR(journal_.add_layer(layer, std::move(sums), commit.not_finite));
  progress.layer_done();
  return reclaimer_.has_value() ? reclaimer_->layer_done(layer) : Status::ok();
}

Status Conversion::write_manifests() {
  MOE_RETURN_IF_ERROR(write_resident_manifest(output_.path(), plan_.resident));
  if (!plan_.prediction.is_empty()) {
    MOE_RETURN_IF_ERROR(write_prediction_manifest(output_.path(), plan_.prediction));
  }
  return write_pack_manifest(output_.path() / kDefaultPackName, plan_.pack);
}

}  // namespace moepack
