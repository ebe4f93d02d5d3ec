#include "convert/pack/reorder.h"

#include <algorithm>
#include <system_error>

#include <nlohmann/json.hpp>

#include "convert/job/journal.h"
#include "convert/job/output_directory.h"
#include "convert/job/pack_name.h"
#include "convert/job/parallel.h"
#include "convert/job/record_stream.h"
#include "convert/pack/conversion_report.h"
#include "convert/pack/copy_record.h"
#include "convert/pack/journaled_pack.h"
#include "convert/pack/layout_table.h"
#include "convert/pack/plan.h"
#include "convert/source/model_files.h"
#include "convert/source/path_kind.h"
#include "formats/base/checksum.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "formats/base/space.h"
#include "formats/calibration/hot_experts.h"
#include "formats/flashmoe/flashmoe_pack.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

struct ReorderPlan {
  PackManifest source;
  ConvertPlan target;  // its pack alone
  JournaledPack::Work work;
};

Status check_pack_options(const ConvertOptions& options) {
  if (options.expert_format.has_value() || options.resident_format.has_value() || options.reclaim ||
      options.keep_prediction) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = options.source.string()},
                      "is a pack, of which convert changes the order of rows and nothing else",
                      "leave out --expert-format, --resident, --reclaim and --keep-prediction; "
                      "moepack quantize makes packs of other formats");
  }
  const std::string name = directory_name(options.output);
  if (new_pack_directory(name) != name) {
    return make_error(
        StatusCode::kInvalidArgument, Where{.file = options.output.string()},
        "cannot be the name of a pack",
        "name a directory packed_experts_NAME, in the model's directory, with letters, "
        "digits, _ and - as NAME");
  }
  return check_page_size(options.page_size);
}

// What the source's manifest reports, as JSON; "" for nothing.
Result<std::string> report_of_source(const fs::path& directory) {
  const fs::path file = directory / kPackManifestName;
  if (!is_there(file)) return std::string();
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxManifestBytes));
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("report")) return std::string();
  return json["report"].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status plan_layers(const ConvertOptions& options, ReorderPlan& plan) {
  PackManifest& pack = plan.target.pack;
  pack.num_layers = plan.source.num_layers;
  pack.num_experts = plan.source.num_experts;
  pack.hidden_size = plan.source.hidden_size;
  pack.expert_width = plan.source.expert_width;
  pack.page_size = options.page_size;
  const auto experts_of = [&](std::uint32_t l) { return plan.source.experts_of(l); };
  const auto layout_of = [&](std::uint32_t l, std::uint32_t e) -> Result<ExpertLayout> {
    const ExpertLayout& from = plan.source.layout_of(l, e);
    plan.target.source_bytes += from.record_bytes;
    return in_order(from, options.row_order);
  };
  MOE_ASSIGN_OR_RETURN(plan.target.expert_bytes, plan_pack_layers(pack, experts_of, layout_of));
  return check_row_order(pack, options.row_order);
}

Result<ReorderPlan> make_reorder_plan(const ConvertOptions& options) {
  MOE_RETURN_IF_ERROR(check_pack_options(options));
  ReorderPlan plan;
  MOE_ASSIGN_OR_RETURN(plan.source, read_lone_pack(options.source));
  for (std::uint32_t layer : options.layers) {
    MOE_RETURN_IF_ERROR(check_layer_exists(layer, plan.source.num_layers));
  }
  MOE_RETURN_IF_ERROR(plan_layers(options, plan));
  PackManifest& pack = plan.target.pack;
  pack.source = plan.source.source;
  // As moepack import does with packs of other engines.
  if (!plan.source.has_checksums) {
    pack.source = {
        .name = directory_name(options.source), .fingerprint = 0, .method = kImportMethod};
  }
  MOE_ASSIGN_OR_RETURN(pack.report_json, report_of_source(options.source));
  const std::string text = pack_manifest_text(pack);
  plan.target.total_bytes = plan.target.expert_bytes + text.size();
  const std::string digested = text + pack_manifest_text(plan.source);
  plan.work = {.kind = WorkKind::kConversion,
               .what = to_string(pack.layouts.front().of(Projection::kGate).format) + " of " +
                       pack.source.name,
               .digest = checksum(std::as_bytes(std::span(digested)))};
  return plan;
}

ConvertReport report_of(const ConvertOptions& options, const ReorderPlan& plan) {
  ConvertReport report = report_of({}, options.source.string(), plan.target, options);
  report.is_pack = true;
  return report;
}

// The records of one layer.
Result<AtomicFile> write_layer(const ConvertOptions& options, ReorderPlan& plan, std::uint32_t l,
                               std::vector<AlignedBuffer>& buffers, ProgressCounter& progress) {
  PackManifest& pack = plan.target.pack;
  LayerEntry& entry = pack.layers[l];
  MOE_ASSIGN_OR_RETURN(const File source, File::open(options.source / plan.source.layers[l].file));
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(options.output / entry.file));
  MOE_RETURN_IF_ERROR(file.resize(entry.file_size));
  file.write_directly();
  const auto copy = [&](std::size_t item, std::size_t worker) -> Status {
    const auto e = static_cast<std::uint32_t>(item);
    const ExpertLayout& layout = pack.layout_of(l, e);
    RecordStream record(file, entry.experts[e].offset, buffers[worker]);
    MOE_RETURN_IF_ERROR(copy_record(plan.source, l, e, source, layout, record));
    MOE_ASSIGN_OR_RETURN(entry.experts[e].checksum, record.finish());
    progress.add_bytes(layout.record_bytes);
    return Status::ok();
  };
  MOE_RETURN_IF_ERROR(parallel_items(pack.experts_of(l), buffers.size(), copy));
  return file;
}

// The small files that stand beside the layers of a pack of mixed widths.
Status write_beside(const ConvertOptions& options, const PackManifest& pack) {
  const std::string tiers = pack.layouts.size() > 1 ? flashmoe_tiered_text(pack) : "";
  if (!tiers.empty()) {
    MOE_RETURN_IF_ERROR(write_text_file(options.output / kTieredManifestName, tiers));
  }
  if (!is_there(options.source / kHotExpertsName)) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const std::string hot,
                       read_text_file(options.source / kHotExpertsName, kMaxManifestBytes));
  return write_text_file(options.output / kHotExpertsName, hot);
}

ConvertProgress starting_point(const ReorderPlan& plan, const JournaledPack& pack) {
  return {.bytes_done = 0,
          .bytes_total = pack.bytes_left(),
          .layers_done = static_cast<std::uint32_t>(pack.layers_done()),
          .layers_total = plan.target.pack.expert_layers()};
}

}  // namespace

bool is_pack_directory(const fs::path& path) {
  const auto kind = find_path_kind(path);
  return kind.is_ok() && kind.value() == PathKind::kPack;
}

Status check_no_model_directory(const fs::path& path) {
  const auto kind = find_path_kind(path);
  if (!kind.is_ok() || kind.value() != PathKind::kModel) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, list_directory(path));
  const bool has_checkpoint =
      std::any_of(entries.begin(), entries.end(),
                  [](const fs::path& entry) { return entry.extension() == ".safetensors"; });
  if (has_checkpoint) return Status::ok();
  return make_error(
      StatusCode::kInvalidArgument, Where{.file = path.string()},
      "is a model directory, converted already",
      "name one of its packs to make a pack in another --row-order, or the checkpoint");
}

Result<ConvertReport> plan_reordering(const ConvertOptions& options) {
  MOE_ASSIGN_OR_RETURN(const ReorderPlan plan, make_reorder_plan(options));
  MOE_RETURN_IF_ERROR(OutputDirectory::check(options.output, OutputKind::kReorderedPack).status());
  ConvertReport report = report_of(options, plan);
  MOE_ASSIGN_OR_RETURN(report.needed_bytes, JournaledPack::foresee(plan.target.pack, options.output,
                                                                   plan.work, options.restart));
  return report;
}

Result<ConvertReport> reorder_pack(const ConvertOptions& options,
                                   const ProgressCallback& progress) {
  const auto start = Clock::now();
  MOE_ASSIGN_OR_RETURN(ReorderPlan plan, make_reorder_plan(options));
  ConvertReport report = report_of(options, plan);
  MOE_ASSIGN_OR_RETURN(OutputDirectory output,
                       OutputDirectory::take(options.output, OutputKind::kReorderedPack));
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal,
                       ConversionJournal::open(output.marker_fd(), output.marker_path().string()));
  // Killed between the last manifest and the removal of the marker.
  if (journal.is_complete() && journal.plan() == plan.work.digest) {
    MOE_RETURN_IF_ERROR(output.finish());
    report.layers_resumed = plan.target.pack.expert_layers();
    report.finished = true;
    return report;
  }
  JournaledPack pack(plan.target.pack, output, std::move(journal), report.threads);
  MOE_RETURN_IF_ERROR(pack.prepare(plan.work, options.restart));
  report.layers_resumed = pack.layers_done();
  report.needed_bytes = pack.bytes_left();
  MOE_RETURN_IF_ERROR(check_space(options.output, "the pack", report.needed_bytes,
                                  report.free_bytes, "free some space"));
  MOE_RETURN_IF_ERROR(write_beside(options, plan.target.pack));
  std::vector<AlignedBuffer> buffers(report.threads);
  ProgressCounter counter(starting_point(plan, pack), progress);
  MOE_RETURN_IF_ERROR(pack.run(
      [&](std::uint32_t layer, ProgressCounter& own) {
        report.read_bytes += plan.source.layers[layer].file_size;
        return write_layer(options, plan, layer, buffers, own);
      },
      options.layers, counter));
  report.layers_left = pack.layers_left();
  report.finished = report.layers_left == 0;
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace moepack
