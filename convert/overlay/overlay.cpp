#include "convert/overlay/overlay.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>

#include "convert/job/journal.h"
#include "convert/job/output_directory.h"
#include "convert/job/pack_name.h"
#include "convert/job/parallel.h"
#include "convert/overlay/overlay_files.h"
#include "convert/overlay/overlay_plan.h"
#include "convert/pack/journaled_pack.h"
#include "convert/pack/pack.h"
#include "convert/report/pack_summary.h"
#include "formats/base/checksum.h"
#include "formats/base/elapsed.h"
#include "formats/base/space.h"
#include "formats/pack/q3_keys.h"
#include "formats/pack_directory.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// All that was found out before anything is written.
struct OverlayJob {
  ModelSource source;
  ConvertPlan plan;  // of the GGUF file; its pack is the one that is written
  OverlaidModel model;
  std::vector<PlannedOverlay> overlays;
  std::vector<PlannedOverlay*> to_write;  // of overlays: those that are not there
  fs::path pack;                          // the directory; "" when none is to be written
  std::uint64_t digest = 0;               // of the pack
  OverlayReport report;
};

std::uint64_t text_sum(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

// True when the pack is there, finished, with the layouts and the source that are planned.
bool is_pack_there(const fs::path& directory, const PackManifest& planned) {
  const auto kind = detect_pack(directory);
  if (!kind.is_ok() || kind.value() != PackKind::kNative) return false;
  auto there = read_pack_manifest(directory);
  if (!there.is_ok()) return false;
  PackManifest& found = there.value();
  if (found.layers.size() != planned.layers.size()) return false;
  for (LayerEntry& layer : found.layers) {
    for (ExpertEntry& expert : layer.experts) expert.checksum = 0;
  }
  found.report_json = planned.report_json;
  return pack_manifest_text(found) == pack_manifest_text(planned);
}

Status plan_pack(const OverlayOptions& options, OverlayJob& job) {
  PackManifest& pack = job.plan.pack;
  const auto directory = new_pack_directory(options.name);
  if (!directory.has_value()) {
    return invalid_argument("\"" + printable(options.name) + "\" cannot be the name of a pack",
                            "give --name letters, digits, _ and -, as in --name Q3");
  }
  const std::string& name = *directory;
  pack.source.method = kOverlayMethod;
  MOE_ASSIGN_OR_RETURN(const std::string unchecked, check_same_experts(job.plan, job.model, name));
  if (!unchecked.empty()) {
    job.report.notes.push_back(unchecked + ": whether the experts are its own was not checked");
  }
  job.digest = text_sum(pack_manifest_text(pack));
  job.report.pack = name;
  job.report.pack_formats = pack_formats(pack);
  job.report.pack_bytes = job.plan.expert_bytes;
  job.report.num_layers = pack.num_layers;
  const std::string problem = q3_problem(pack);
  job.report.is_engine_pack = problem.empty();
  if (!problem.empty()) {
    job.report.notes.push_back("the flash-moe engines cannot run this pack: " + problem);
  }
  job.report.is_pack_kept = is_pack_there(options.model / name, pack);
  if (job.report.is_pack_kept) return Status::ok();
  job.pack = options.model / name;
  return OutputDirectory::check(job.pack, OutputKind::kOverlayPack).status();
}

std::string types_of(const ResidentOverlay& overlay) {
  std::set<std::string> names;
  for (const OverlayTensor& entry : overlay.tensors) {
    names.emplace(qformat_info(entry.tensor.format.id).name);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Groups of which every file is there are left alone, the others written whole.
Status plan_files(const OverlayOptions& options, OverlayJob& job) {
  std::set<OverlayGroup> incomplete;
  for (PlannedOverlay& planned : job.overlays) {
    MOE_ASSIGN_OR_RETURN(const bool there, is_overlay_there(job.model, options.replace, planned));
    if (!there) incomplete.insert(planned.overlay.group);
  }
  for (PlannedOverlay& planned : job.overlays) {
    const ResidentOverlay& overlay = planned.overlay;
    const bool wanted = incomplete.contains(overlay.group);
    if (wanted) job.to_write.push_back(&planned);
    job.report.overlays.push_back(
        {.file = std::string(kOverlayDirectory) + "/" + overlay.data_name(),
         .group = std::string(overlay_group_name(overlay.group)),
         .types = types_of(overlay),
         .matrices = overlay.tensors.size(),
         .bytes = overlay.data_size,
         .kept = !wanted});
    for (const OverlayTensor& entry : overlay.tensors) {
      if (overlay.group != OverlayGroup::kLinearAttention ||
          entry.v_heads == job.model.residents.conventions.v_heads) {
        continue;
      }
      job.report.notes.push_back(
          "blocks of " + entry.tensor.name +
          " span several V heads: it keeps its order, and the layers with such a matrix run in "
          "that; the flash-moe engines cannot");
      break;
    }
  }
  return Status::ok();
}

Result<OverlayJob> prepare(const OverlayOptions& options) {
  if (!options.experts && options.groups.empty()) {
    return invalid_argument("no tensors were asked for", "give --tensors");
  }
  OverlayJob job;
  MOE_ASSIGN_OR_RETURN(job.model, open_overlaid_model(options.model));
  MOE_ASSIGN_OR_RETURN(job.source, ModelSource::open(options.gguf));
  if (job.source.gguf() == nullptr) {
    const std::string path = options.gguf.string();
    return make_error(StatusCode::kInvalidArgument, Where{.file = path}, "is no GGUF file",
                      "overlays are taken from GGUF files");
  }
  MOE_RETURN_IF_ERROR(job.source.check_usable_in_place());
  MOE_RETURN_IF_ERROR(check_same_model(job.source, job.model));
  ConvertOptions as_it_is;
  as_it_is.page_size = options.page_size;
  as_it_is.row_order = options.row_order;
  MOE_ASSIGN_OR_RETURN(job.plan, make_plan(job.source, as_it_is));
  job.report.source = job.source.path().string();
  job.report.threads = bounded_thread_count(options.threads);
  MOE_ASSIGN_OR_RETURN(job.overlays,
                       plan_resident_overlays(job.source, job.plan, job.model.residents.conventions,
                                              options.groups));
  MOE_RETURN_IF_ERROR(check_same_residents(job.overlays, job.model));
  if (options.experts) MOE_RETURN_IF_ERROR(plan_pack(options, job));
  return job;
}

Status check_space_for(const OverlayOptions& options, OverlayReport& report) {
  report.free_bytes = free_space(options.model);
  return check_space(options.model, "the overlay", report.needed_bytes, report.free_bytes,
                     "free some space");
}

std::uint64_t bytes_to_write(const OverlayJob& job) {
  std::uint64_t bytes = 0;
  for (const PlannedOverlay* planned : job.to_write) bytes += planned->overlay.data_size;
  return bytes;
}

ConvertProgress starting_point(const OverlayJob& job, std::uint64_t layers_done,
                               std::uint64_t pack_bytes) {
  ConvertProgress start;
  start.bytes_total = bytes_to_write(job) + pack_bytes;
  start.layers_total = job.pack.empty() ? 0 : job.plan.pack.expert_layers();
  start.layers_done = static_cast<std::uint32_t>(layers_done);
  return start;
}

// The files of MODEL/gguf; `directory` is absent where no group was asked for.
Status write_files(OverlayJob& job, std::optional<OverlayDirectory>& directory,
                   ProgressCounter& progress) {
  if (!directory.has_value()) return Status::ok();
  return directory->write(job.to_write, job.report.threads, progress);
}

Status write_files_alone(const OverlayOptions& options, OverlayJob& job,
                         std::optional<OverlayDirectory>& directory,
                         const ProgressCallback& callback) {
  job.report.needed_bytes = bytes_to_write(job);
  MOE_RETURN_IF_ERROR(check_space_for(options, job.report));
  ProgressCounter progress(starting_point(job, 0, 0), callback);
  return write_files(job, directory, progress);
}

JournaledPack::Work work_of(const OverlayJob& job) {
  return {.kind = WorkKind::kOverlay,
          .what = "experts " + pack_formats(job.plan.pack) + " of " + job.plan.pack.source.name,
          .digest = job.digest};
}

Status write_all(const OverlayOptions& options, OverlayJob& job,
                 std::optional<OverlayDirectory>& directory, const ProgressCallback& callback) {
  if (job.pack.empty()) return write_files_alone(options, job, directory, callback);
  MOE_ASSIGN_OR_RETURN(OutputDirectory output,
                       OutputDirectory::take(job.pack, OutputKind::kOverlayPack));
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal,
                       ConversionJournal::open(output.marker_fd(), output.marker_path().string()));
  // Killed between the last manifest and the removal of the marker.
  if (journal.is_complete() && journal.plan() == job.digest) {
    job.report.layers_resumed = job.plan.pack.expert_layers();
    MOE_RETURN_IF_ERROR(write_files_alone(options, job, directory, callback));
    return output.finish();
  }
  JournaledPack pack(job.plan.pack, output, std::move(journal), job.report.threads);
  MOE_RETURN_IF_ERROR(pack.prepare(work_of(job), options.restart));
  job.report.layers_resumed = pack.layers_done();
  job.report.needed_bytes = bytes_to_write(job) + pack.bytes_left();
  MOE_RETURN_IF_ERROR(check_space_for(options, job.report));
  ProgressCounter progress(starting_point(job, pack.layers_done(), pack.bytes_left()), callback);
  MOE_RETURN_IF_ERROR(write_files(job, directory, progress));
  std::vector<PackWorker> workers(job.report.threads);
  return pack.run(
      [&](std::uint32_t layer, ProgressCounter& counter) {
        return write_layer_file(job.plan.experts, output.path(), layer, workers, job.plan.pack,
                                counter);
      },
      {}, progress);
}

}  // namespace

Result<OverlayReport> plan_overlay(const OverlayOptions& options) {
  MOE_ASSIGN_OR_RETURN(OverlayJob job, prepare(options));
  MOE_RETURN_IF_ERROR(plan_files(options, job));
  job.report.needed_bytes = bytes_to_write(job);
  if (!job.pack.empty()) {
    MOE_ASSIGN_OR_RETURN(
        const std::uint64_t left,
        JournaledPack::foresee(job.plan.pack, job.pack, work_of(job), options.restart));
    job.report.needed_bytes += left;
  }
  job.report.free_bytes = free_space(options.model);
  return std::move(job.report);
}

Result<OverlayReport> overlay_model(const OverlayOptions& options,
                                    const ProgressCallback& progress) {
  const auto start = Clock::now();
  MOE_ASSIGN_OR_RETURN(OverlayJob job, prepare(options));
  std::optional<OverlayDirectory> directory;
  if (!job.overlays.empty()) {
    MOE_ASSIGN_OR_RETURN(OverlayDirectory taken, OverlayDirectory::take(options.model));
    directory.emplace(std::move(taken));
  }
  MOE_RETURN_IF_ERROR(plan_files(options, job));
  MOE_RETURN_IF_ERROR(write_all(options, job, directory, progress));
  job.report.seconds = seconds_since(start);
  return std::move(job.report);
}

}  // namespace moepack
