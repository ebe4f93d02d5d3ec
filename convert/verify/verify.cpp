#include "convert/verify/verify.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "convert/export/flashmoe/import.h"
#include "convert/job/parallel.h"
#include "convert/quantize/sensitivity.h"
#include "convert/source/model_files.h"
#include "convert/verify/source_parts.h"
#include "convert/verify/verify_data.h"
#include "convert/verify/verify_overlay.h"
#include "convert/verify/verify_prediction.h"
#include "convert/verify/verify_source.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "formats/base/paths.h"
#include "formats/calibration/hot_experts.h"
#include "formats/config/companion_files.h"
#include "formats/flashmoe/engine_files.h"
#include "formats/flashmoe/flashmoe_resident.h"
#include "formats/model_dir.h"
#include "formats/pack_directory.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

struct OpenPack {
  std::string name;
  fs::path path;
  PackManifest manifest;
};

// All that is to be verified, with manifests read and checked against each other.
struct OpenModel {
  std::optional<ModelConfig> config;          // nullopt: a lone pack
  std::optional<ResidentManifest> residents;  // nullopt: a lone pack
  ResidentData data;                          // of the residents
  std::vector<ResidentOverlay> overlays;
  std::optional<PredictionManifest> prediction;
  std::vector<OpenPack> packs;
  std::vector<PackSource> sources;  // of all packs, those that are not verified too
};

Result<OpenModel> open_lone_pack(const fs::path& path) {
  OpenModel model;
  MOE_ASSIGN_OR_RETURN(PackManifest pack, read_lone_pack(path));
  model.sources.push_back(pack.source);
  model.packs.push_back({directory_name(path), path, std::move(pack)});
  return model;
}

Result<OpenModel> open_model(const VerifyOptions& options) {
  const fs::path& path = options.path;
  if (is_there(path / kUnfinishedMarker)) return open_model_dir(path, options.pack).status();
  OpenModel model;
  MOE_ASSIGN_OR_RETURN(const ParsedConfig config, read_model_config(path / "config.json"));
  model.config = config.model;
  MOE_ASSIGN_OR_RETURN(model.residents, read_model_residents(path, config.model));
  MOE_ASSIGN_OR_RETURN(model.data, ResidentData::open(path, *model.residents));
  MOE_ASSIGN_OR_RETURN(model.overlays,
                       read_resident_overlays(path, *model.config, list_overlay_groups(path)));
  MOE_ASSIGN_OR_RETURN(model.prediction, read_prediction_manifest(path));
  // Without a name run takes this pack and no other.
  if (options.pack.empty()) MOE_RETURN_IF_ERROR(check_is_listed(path / kDefaultPackName));
  MOE_ASSIGN_OR_RETURN(std::vector<std::string> names, list_packs(path));
  for (const std::string& name : names) {
    // What is damaged here is found below, if it is to be verified.
    const auto pack = read_pack_directory(path / name, pack_dimensions(config.model));
    if (pack.is_ok()) model.sources.push_back(pack.value().source);
  }
  if (!options.pack.empty() || names.empty()) {
    MOE_ASSIGN_OR_RETURN(const std::string name, choose_pack(path, options.pack));
    names = {name};
  }
  for (const std::string& name : names) {
    MOE_ASSIGN_OR_RETURN(PackManifest pack,
                         read_pack_directory(path / name, pack_dimensions(config.model)));
    MOE_RETURN_IF_ERROR(check_pack_fits(*model.config, pack, path / name));
    model.packs.push_back({name, path / name, std::move(pack)});
  }
  return model;
}

Status check_companions(const VerifyOptions& options, const ModelConfig& config,
                        std::vector<std::string>& notes) {
  for (const CompanionFile& companion : kCompanionFiles) {
    MOE_ASSIGN_OR_RETURN(const auto text, read_companion(options.path, companion.name));
    if (text.has_value()) {
      const std::string file = (options.path / companion.name).string();
      MOE_RETURN_IF_ERROR(
          check_companion(companion.name, *text, file, config.vocab_size, options.tokenizer));
    } else if (companion.name == std::string_view(kTokenizerName)) {
      notes.emplace_back("tokenizer.json is absent: texts cannot be run");
    }
  }
  return Status::ok();
}

// What is to be said of an entry of the model that belongs to nothing.
std::string note_of(const fs::path& entry) {
  const std::string name = entry.filename().string();
  if (is_meant_as_pack(entry)) {
    const Status listed = check_is_listed(entry);
    if (!listed.is_ok()) return listed.message();
  }
  const bool left_over = name.ends_with(".tmp") || name.starts_with("moepack.");
  return printable(entry.string(), 4096) + (left_over
                                                ? ": left over by an interrupted command; remove it"
                                                : ": is no part of the model");
}

// Names in `directory` that neither `known` nor a pack accounts for.
void note_other_files(const fs::path& directory, const std::set<std::string, std::less<>>& known,
                      std::vector<std::string>& notes) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (known.count(name) == 0) found.push_back(std::move(name));
  }
  std::sort(found.begin(), found.end());
  for (const std::string& name : found) notes.push_back(note_of(directory / name));
}

void note_leftovers(const VerifyOptions& options, const OpenModel& model,
                    std::vector<std::string>& notes) {
  for (const OpenPack& pack : model.packs) {
    std::set<std::string, std::less<>> known{kPackManifestName, kTieredManifestName,
                                             kKeptLayoutName, kHotExpertsName};
    for (const LayerEntry& layer : pack.manifest.layers) {
      if (!layer.experts.empty()) known.insert(layer.file);
    }
    note_other_files(pack.path, known, notes);
    if (!pack.manifest.has_checksums) {
      notes.push_back("pack " + printable(pack.name) +
                      " has no checksums: flipped bits cannot be seen; moepack import adds them");
    }
  }
  if (!model.residents.has_value()) {
    const Status whole = check_model_finished(directory_above(options.path));
    if (!whole.is_ok()) notes.push_back("the model around the pack: " + whole.message());
    return;
  }
  std::set<std::string, std::less<>> known{
      kResidentManifestName, kResidentDataName, kFlashMoeTokenizerName, kFlashMoeVocabName,
      kOverlayDirectory,     kKeptResidentName, kSensitivityName};
  for (const CompanionFile& companion : kCompanionFiles) known.insert(companion.name);
  if (model.prediction.has_value()) known.insert({kPredictionManifestName, kPredictionDataName});
  for (const ResidentData::Part& part : model.data.parts()) {
    known.insert(fs::path(part.file.path()).filename().string());
  }
  if (!model.residents->has_checksum) {
    notes.emplace_back(
        "the resident tensors have no checksum: flipped bits cannot be seen; moepack import adds "
        "it");
  }
  std::set<std::string, std::less<>> overlay_files;
  for (const ResidentOverlay& overlay : model.overlays) {
    overlay_files.insert({overlay.data_name(), overlay.manifest_name()});
    if (!overlay.has_checksum) {
      notes.push_back("overlay " + overlay.data_name() +
                      " has no checksum: flipped bits cannot be seen");
    }
  }
  note_other_files(options.path / kOverlayDirectory, overlay_files, notes);
  const auto packs = list_packs(options.path);
  if (packs.is_ok()) known.insert(packs.value().begin(), packs.value().end());
  note_other_files(options.path, known, notes);
}

std::uint64_t pack_bytes(const PackManifest& pack) {
  std::uint64_t bytes = 0;
  for (const LayerEntry& layer : pack.layers) bytes += layer.file_size;
  return bytes;
}

// The source, opened once for all packs.
struct OpenSource {
  ModelSource model;
  ConvertPlan plan;
};

Result<std::unique_ptr<OpenSource>> open_source(const VerifyOptions& options, bool has_prediction) {
  if (!options.against.has_value()) return std::unique_ptr<OpenSource>();
  auto source = std::make_unique<OpenSource>();
  MOE_ASSIGN_OR_RETURN(source->model, ModelSource::open(*options.against));
  MOE_RETURN_IF_ERROR(source->model.check_usable_in_place());
  ConvertOptions as_it_is;
  as_it_is.keep_prediction = has_prediction;
  MOE_ASSIGN_OR_RETURN(source->plan, make_plan(source->model, as_it_is));
  return source;
}

SourceParts find_parts(const OpenModel& model, const OpenSource& source) {
  StatedSources stated{
      .residents = std::nullopt, .packs = model.sources, .overlays = model.overlays};
  if (model.residents.has_value()) stated.residents = model.residents->model;
  return parts_of_source(stated, source.model.name(), source.model.fingerprint());
}

// A part that is compared with the source, or a note that it is not.
Status compare_overlays_of(const SourceComparison& with, const VerifyOptions& options,
                           const OpenModel& model, const SourceParts& parts, VerifyReport& report,
                           bool& any) {
  std::vector<ResidentOverlay> of_source;
  for (const ResidentOverlay& overlay : model.overlays) {
    if (parts.has(overlay)) {
      of_source.push_back(overlay);
    } else {
      report.notes.push_back("overlay " + overlay.data_name() +
                             " is of another source: not compared");
    }
  }
  any = any || !of_source.empty();
  return compare_overlays(with, options.path, model.residents->conventions, of_source);
}

Status compare_residents_of(const SourceComparison& with, const VerifyOptions& options,
                            const OpenModel& model, const SourceParts& parts, VerifyReport& report,
                            bool& any) {
  if (parts.residents) {
    any = true;
    return compare_residents(with, options.path, *model.residents, model.data);
  }
  if (any) {
    report.notes.push_back(std::string("the resident tensors ") +
                           (model.residents->model.empty() ? "do not say what they were made from"
                                                           : "are of another source") +
                           ": not compared");
  }
  return Status::ok();
}

// The prediction tensors are of the source that they name, which is that of the residents.
Status compare_prediction_of(const SourceComparison& with, const VerifyOptions& options,
                             const OpenModel& model, bool of_another, VerifyReport& report) {
  if (model.prediction->fingerprint == with.source.fingerprint()) {
    return compare_prediction(with, options.path, *model.prediction);
  }
  if (of_another) {
    report.notes.emplace_back("the prediction tensors are of another source: not compared");
  } else {
    log_prediction_fingerprint(with, options.path, *model.prediction);
  }
  return Status::ok();
}

// A pack that is not compared. Where nothing of the model is, the source is a wrong one.
void report_other_pack(const SourceComparison& with, const OpenPack& pack, bool any,
                       VerifyReport& report) {
  if (!any) {
    log_fingerprint(with, pack.path, pack.manifest);
    return;
  }
  report.notes.push_back("pack " + printable(pack.name) +
                         (pack.manifest.source.fingerprint == 0
                              ? " does not say what it was made from: not compared"
                              : " is of another source: not compared"));
}

Status compare_with_source(const OpenSource& source, const SourceParts& parts,
                           const VerifyOptions& options, const OpenModel& model, DifferenceLog& log,
                           ProgressCounter& progress, VerifyReport& report) {
  const SourceComparison with{.source = source.model,
                              .plan = source.plan,
                              .threads = report.threads,
                              .log = log,
                              .progress = progress,
                              .compared = report.compared};
  bool any = false;
  std::vector<const OpenPack*> others;
  for (std::size_t i = 0; i < model.packs.size(); ++i) {
    const OpenPack& pack = model.packs[i];
    if (!parts.has(pack.manifest.source)) {
      others.push_back(&pack);
      continue;
    }
    if (pack.manifest.source.fingerprint == 0) {
      report.notes.push_back("pack " + printable(pack.name) +
                             " does not say what it was made from: compared all the same");
    }
    any = true;
    report.packs[i].compared = true;
    MOE_RETURN_IF_ERROR(compare_experts(with, pack.path, pack.manifest));
  }
  if (model.residents.has_value()) {
    MOE_RETURN_IF_ERROR(compare_overlays_of(with, options, model, parts, report, any));
    MOE_RETURN_IF_ERROR(compare_residents_of(with, options, model, parts, report, any));
  }
  if (model.prediction.has_value()) {
    MOE_RETURN_IF_ERROR(
        compare_prediction_of(with, options, model, any && !parts.residents, report));
  }
  for (const OpenPack* pack : others) report_other_pack(with, *pack, any, report);
  return Status::ok();
}

ProgressCounter count_work(const OpenModel& model, const OpenSource* source,
                           const SourceParts& parts, const ProgressCallback& callback) {
  std::uint64_t bytes = model.residents.has_value() ? model.residents->data_size : 0;
  for (const ResidentOverlay& overlay : model.overlays) bytes += overlay.data_size;
  if (model.prediction.has_value()) bytes += model.prediction->data_size;
  std::uint64_t prediction_source_bytes = 0;
  std::uint64_t resident_source_bytes = 0;
  std::uint64_t expert_source_bytes = 0;
  if (source != nullptr) {
    for (const SourceMatrix& matrix : source->plan.resident_sources) {
      resident_source_bytes += matrix.bytes();
    }
    for (const SourceTensor& tensor : source->plan.prediction_sources) {
      prediction_source_bytes += tensor.size();
    }
    bytes += prediction_source_bytes;
    expert_source_bytes =
        source->plan.source_bytes - resident_source_bytes - prediction_source_bytes;
  }
  std::uint32_t layers = 0;
  for (const OpenPack& pack : model.packs) {
    bytes += pack_bytes(pack.manifest);
    layers += pack.manifest.expert_layers();
    if (source == nullptr || !parts.has(pack.manifest.source)) continue;
    bytes += expert_source_bytes;
    layers += pack.manifest.expert_layers();
  }
  if (parts.residents) bytes += resident_source_bytes;
  return {ConvertProgress{
              .bytes_done = 0, .bytes_total = bytes, .layers_done = 0, .layers_total = layers},
          callback};
}

}  // namespace

Result<VerifyReport> verify_model(const VerifyOptions& options, const ProgressCallback& callback) {
  const auto start = Clock::now();
  VerifyReport report;
  MOE_ASSIGN_OR_RETURN(report.kind, find_path_kind(options.path));
  if (report.kind != PathKind::kModel && report.kind != PathKind::kPack) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = options.path.string()},
                      "is no model directory and no pack",
                      "make one with moepack convert; moepack inspect looks at checkpoints");
  }
  MOE_RETURN_IF_ERROR(check_pack_choice(options.path, report.kind, options.pack));
  MOE_ASSIGN_OR_RETURN(const OpenModel model, report.kind == PathKind::kPack
                                                  ? open_lone_pack(options.path)
                                                  : open_model(options));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<OpenSource> source,
                       open_source(options, model.prediction.has_value()));
  report.threads = bounded_thread_count(options.threads);

  DifferenceLog log;
  const SourceParts parts = source != nullptr ? find_parts(model, *source) : SourceParts();
  ProgressCounter progress = count_work(model, source.get(), parts, callback);
  if (model.residents.has_value()) {
    MOE_RETURN_IF_ERROR(check_companions(options, *model.config, report.notes));
    check_resident_names(options.path, *model.config, *model.residents, log);
    MOE_RETURN_IF_ERROR(check_resident_data(model.data, *model.residents, log, progress));
    report.resident_tensors = model.residents->tensors.size();
    report.resident_bytes = model.residents->data_size;
  }
  for (const ResidentOverlay& overlay : model.overlays) {
    MOE_RETURN_IF_ERROR(check_overlay(options.path, overlay, log, progress));
    report.overlays.push_back({.name = overlay.data_name(),
                               .matrices = overlay.tensors.size(),
                               .bytes = overlay.data_size});
  }
  if (model.prediction.has_value()) {
    MOE_RETURN_IF_ERROR(
        check_prediction_data(options.path, *model.prediction, report.threads, log, progress));
    report.prediction_tensors = model.prediction->tensors.size();
    report.prediction_bytes = model.prediction->data_size;
  }
  for (const OpenPack& pack : model.packs) {
    MOE_RETURN_IF_ERROR(check_records(pack.path, pack.manifest, report.threads, log, progress));
    report.packs.push_back({.name = pack.name,
                            .records = pack.manifest.all_experts(),
                            .bytes = pack_bytes(pack.manifest),
                            .has_checksums = pack.manifest.has_checksums,
                            .compared = false});
  }
  note_leftovers(options, model, report.notes);
  if (source != nullptr) {
    MOE_RETURN_IF_ERROR(compare_with_source(*source, parts, options, model, log, progress, report));
  }
  report.differences = log.kept();
  report.num_differences = log.count();
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace moepack
