#include "convert/export/flashmoe/import.h"

#include <algorithm>
#include <system_error>

#include "convert/job/parallel.h"
#include "convert/job/progress_counter.h"
#include "convert/pack/engine_config.h"
#include "formats/base/checksum.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "formats/base/work_directory.h"
#include "formats/flashmoe/flashmoe_resident.h"
#include "formats/model_dir.h"
#include "formats/pack/resident_files.h"
#include "formats/pack_directory.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxThreads = 64;  // each holds a block

// Copies `name` in `directory` to `kept` unless that holds the same text already.
Status keep_original(const fs::path& directory, const char* name, const char* kept) {
  if (!is_there(directory / name)) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(directory / name, kMaxManifestBytes));
  if (!is_there(directory / kept)) return write_text_file(directory / kept, text);
  MOE_ASSIGN_OR_RETURN(const std::string old, read_text_file(directory / kept, kMaxManifestBytes));
  if (old == text) return Status::ok();
  const std::string path = (directory / kept).string();
  return invalid_argument(path + " holds another manifest than " + name + " beside it",
                          "move one of the two away");
}

// ---- Packs --------------------------------------------------------------------------------------

struct PackJob {
  fs::path directory;
  PackManifest manifest;
  ImportedPack report;
};

std::vector<std::string> formats_of(const PackManifest& manifest) {
  std::vector<std::string> names;
  for (const ExpertLayout& layout : manifest.layouts) {
    for (const ProjectionLayout& part : layout.projections) {
      const std::string name = to_string(part.format);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

void fill_report(PackJob& job, const std::string& manifest) {
  ImportedPack& report = job.report;
  report.name = job.directory.filename().string();
  report.manifest = manifest;
  report.num_layers = job.manifest.num_layers;
  report.num_experts = job.manifest.num_experts;
  report.page_size = job.manifest.page_size;
  report.formats = formats_of(job.manifest);
  for (const LayerEntry& layer : job.manifest.layers) report.bytes += layer.file_size;
}

// The pack that the user's formats describe.
Result<PackManifest> described_pack(const fs::path& directory, const ImportOptions& options,
                                    const PackDimensions& dims) {
  const WeightFormat gate_up = *options.expert_format;
  const WeightFormat down = options.down_format.value_or(gate_up);
  const std::string name = to_string(gate_up) + (gate_up == down ? "" : " and " + to_string(down));
  const auto layout =
      make_expert_layout(dims.hidden_size, dims.expert_width, {gate_up, gate_up, down});
  if (!layout.has_value()) {
    return invalid_argument(name + " cannot hold experts of hidden size " +
                                std::to_string(dims.hidden_size) + " and width " +
                                std::to_string(dims.expert_width),
                            "name the format and the group size of this pack");
  }
  MOE_ASSIGN_OR_RETURN(PackManifest manifest, uniform_pack(dims, *layout));
  MOE_RETURN_IF_ERROR(check_foreign_layer_files(directory, manifest, dims,
                                                "--expert-format " + name + " with config.json"));
  return manifest;
}

Result<PackJob> open_pack(const fs::path& directory, const ImportOptions& options,
                          const PackDimensions& dims) {
  PackJob job{.directory = directory, .manifest = {}, .report = {}};
  MOE_ASSIGN_OR_RETURN(const PackKind kind, detect_pack(directory));
  const std::string path = directory.string();
  if (kind == PackKind::kUndescribed && options.expert_format.has_value()) {
    MOE_ASSIGN_OR_RETURN(job.manifest, described_pack(directory, options, dims));
    fill_report(job, "--expert-format");
    return job;
  }
  MOE_ASSIGN_OR_RETURN(job.manifest, read_pack_directory(directory, dims));
  job.report.was_native = kind == PackKind::kNative;
  fill_report(job, job.report.was_native ? kPackManifestName : flashmoe_manifest_name(directory));
  return job;
}

// The checksums of all records; `threads` experts at a time.
Status sum_records(PackJob& job, std::size_t threads, ProgressCounter& progress) {
  std::vector<std::vector<std::byte>> blocks(threads);
  for (std::uint32_t l = 0; l < job.manifest.num_layers; ++l) {
    LayerEntry& layer = job.manifest.layers[l];
    MOE_ASSIGN_OR_RETURN(const File file, File::open(job.directory / layer.file));
    const auto sum = [&](std::size_t e, std::size_t worker) -> Status {
      const std::uint64_t bytes =
          job.manifest.layout_of(l, static_cast<std::uint32_t>(e)).record_bytes;
      const std::uint64_t begin = layer.experts[e].offset;
      MOE_ASSIGN_OR_RETURN(layer.experts[e].checksum,
                           checksum_of_range(file, begin, begin + bytes, blocks[worker]));
      progress.add_bytes(bytes);
      return Status::ok();
    };
    MOE_RETURN_IF_ERROR(parallel_items(layer.experts.size(), threads, sum));
    progress.layer_done();
  }
  return Status::ok();
}

Status adopt_pack(PackJob& job, std::size_t threads, ProgressCounter& progress) {
  MOE_RETURN_IF_ERROR(sum_records(job, threads, progress));
  job.manifest.has_checksums = true;
  job.manifest.source = {
      .name = directory_name(job.directory), .fingerprint = 0, .method = kImportMethod};
  MOE_RETURN_IF_ERROR(keep_original(job.directory, kPackManifestName, kKeptLayoutName));
  return write_pack_manifest(job.directory, job.manifest);
}

// ---- Resident weights ---------------------------------------------------------------------------

Status adopt_residents(const fs::path& model, const ModelConfig& config, ResidentManifest& manifest,
                       ProgressCounter& progress) {
  std::vector<std::byte> block;
  ChecksumStream stream;
  for (const ResidentFile& entry : manifest.files) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(model / entry.name));
    MOE_RETURN_IF_ERROR(for_each_block(file, 0, entry.size, block,
                                       [&](std::uint64_t, std::span<const std::byte> bytes) {
                                         stream.add(bytes);
                                         return Status::ok();
                                       }));
    progress.add_bytes(entry.size);
  }
  manifest.checksum = stream.finish();
  manifest.has_checksum = true;
  manifest.config_json = engine_config_json(config);
  manifest.model = directory_name(model);
  MOE_RETURN_IF_ERROR(keep_original(model, kResidentManifestName, kKeptResidentName));
  return write_resident_manifest(model, manifest);
}

// ---- The whole ----------------------------------------------------------------------------------

struct ImportPlan {
  fs::path model;
  ModelConfig config;
  std::vector<fs::path> packs;
  bool whole_model = false;
};

// Which packs are meant, and the model that they belong to.
Result<ImportPlan> find_packs(const ImportOptions& options) {
  ImportPlan plan;
  const fs::path directory = without_trailing_slash(fs::absolute(options.directory));
  const std::string path = options.directory.string();
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return not_found(Where{.file = path}, "is no directory",
                     "name a pack directory or a model directory");
  }
  plan.whole_model = is_there(directory / "config.json");
  plan.model = plan.whole_model         ? directory
               : !options.model.empty() ? options.model
                                        : directory_above(directory);
  if (!plan.whole_model && !is_there(plan.model / "config.json")) {
    return not_found(Where{.file = path},
                     "stands in no model directory: there is no config.json beside it",
                     "name the model with --model");
  }
  MOE_RETURN_IF_ERROR(check_model_finished(plan.model));
  MOE_ASSIGN_OR_RETURN(ParsedConfig parsed, read_model_config(plan.model / "config.json"));
  plan.config = std::move(parsed.model);
  if (!plan.whole_model) {
    plan.packs = {directory};
    return plan;
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, list_directory(directory));
  for (const fs::path& entry : entries) {
    if (!fs::is_directory(entry, error)) continue;
    const Result<PackKind> kind = detect_pack(entry);
    if (!kind.is_ok() && !is_meant_as_pack(entry)) continue;
    MOE_RETURN_IF_ERROR(kind.status());
    const bool is_pack = kind.value() != PackKind::kNone && kind.value() != PackKind::kLz4 &&
                         kind.value() != PackKind::kUnfinished;
    if (is_pack) plan.packs.push_back(entry);
  }
  return plan;
}

bool is_never_own(std::string_view /*directory*/, std::string_view /*name*/) { return false; }

// Locks what an import writes to, the packs and of a whole model also its own directory, until the
// result goes: two imports would both keep an original, one of them the other's new manifest.
Result<std::vector<WorkDirectory>> lock_directories(const ImportPlan& plan) {
  std::vector<fs::path> directories = plan.packs;
  if (plan.whole_model) directories.push_back(plan.model);
  std::vector<WorkDirectory> locked;
  for (const fs::path& path : directories) {
    MOE_ASSIGN_OR_RETURN(WorkDirectory directory,
                         WorkDirectory::create(path, {.marker = {}, .is_own_file = is_never_own}));
    MOE_RETURN_IF_ERROR(directory.lock("another command is writing there"));
    locked.push_back(std::move(directory));
  }
  return locked;
}

void report_residents(const ResidentManifest& manifest, ImportReport& report) {
  report.has_residents = true;
  report.residents_were_native = manifest.has_checksum;
  for (const ResidentFile& file : resident_files(manifest)) {
    report.resident_files.push_back(file.name);
    report.resident_bytes += file.size;
  }
}

}  // namespace

Result<ImportReport> import_packs(const ImportOptions& options, const ProgressCallback& progress) {
  const auto start = Clock::now();
  MOE_ASSIGN_OR_RETURN(const ImportPlan plan, find_packs(options));
  std::vector<WorkDirectory> locks;
  if (!options.dry_run) {
    MOE_ASSIGN_OR_RETURN(locks, lock_directories(plan));
  }
  const PackDimensions dims = pack_dimensions(plan.config);
  ImportReport report;
  report.model = plan.model.string();
  report.threads = static_cast<unsigned>(std::min(thread_count(options.threads), kMaxThreads));
  std::vector<PackJob> jobs;
  std::uint32_t layers = 0;
  for (const fs::path& directory : plan.packs) {
    MOE_ASSIGN_OR_RETURN(PackJob job, open_pack(directory, options, dims));
    if (!job.report.was_native) {
      report.bytes_read += job.report.bytes;
      layers += job.manifest.num_layers;
    }
    report.packs.push_back(job.report);
    jobs.push_back(std::move(job));
  }
  ResidentManifest residents;
  if (plan.whole_model && is_there(plan.model / kResidentManifestName)) {
    MOE_ASSIGN_OR_RETURN(residents, read_model_residents(plan.model, plan.config));
    report_residents(residents, report);
    if (!report.residents_were_native) report.bytes_read += report.resident_bytes;
  }
  if (jobs.empty() && !report.has_residents) {
    return not_found(Where{.file = report.model}, "holds no packs to import");
  }
  if (options.expert_format.has_value() &&
      std::none_of(report.packs.begin(), report.packs.end(),
                   [](const ImportedPack& p) { return p.manifest == "--expert-format"; })) {
    return invalid_argument("--expert-format is for packs without a manifest; there is none here",
                            "leave it out");
  }
  if (options.dry_run) return report;
  ProgressCounter counter(ConvertProgress{.bytes_done = 0,
                                          .bytes_total = report.bytes_read,
                                          .layers_done = 0,
                                          .layers_total = layers},
                          progress);
  for (PackJob& job : jobs) {
    if (job.report.was_native) continue;
    MOE_RETURN_IF_ERROR(adopt_pack(job, report.threads, counter));
  }
  if (report.has_residents && !report.residents_were_native) {
    MOE_RETURN_IF_ERROR(adopt_residents(plan.model, plan.config, residents, counter));
  }
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace moepack
