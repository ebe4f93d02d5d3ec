#include "convert/pack/convert.h"

#include "convert/pack/conversion.h"
#include "convert/pack/conversion_report.h"
#include "convert/pack/estimate.h"
#include "convert/pack/plan.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "formats/base/space.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

Status check_reclaim(const ModelSource& source, const ConvertOptions& options) {
  if (!options.reclaim || source.checkpoint() != nullptr) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = source.path().string()},
                    "is a GGUF model, of which --reclaim removes nothing",
                    "leave --reclaim out; it works shard by shard on safetensors");
}

// A conversion that was killed between its last manifest and the removal of the marker, whose
// source may be gone (--reclaim).
Result<bool> finish_complete_one(const fs::path& path) {
  MOE_ASSIGN_OR_RETURN(OutputDirectory output, OutputDirectory::take(path));
  MOE_ASSIGN_OR_RETURN(const ConversionJournal journal,
                       ConversionJournal::open(output.marker_fd(), output.marker_path().string()));
  if (!journal.is_complete()) return false;
  MOE_RETURN_IF_ERROR(output.finish());
  return true;
}

Result<ConvertReport> report_of_finished(const ConvertOptions& options) {
  ConvertPlan plan;
  MOE_ASSIGN_OR_RETURN(plan.pack, read_pack_manifest(options.output / kDefaultPackName));
  MOE_ASSIGN_OR_RETURN(plan.resident, read_resident_manifest(options.output));
  MOE_ASSIGN_OR_RETURN(auto prediction, read_prediction_manifest(options.output));
  plan.prediction = std::move(prediction).value_or(PredictionManifest{});
  MOE_ASSIGN_OR_RETURN(const ParsedConfig config,
                       read_model_config(options.output / "config.json"));
  for (const LayerEntry& layer : plan.pack.layers) plan.expert_bytes += layer.file_size;
  plan.resident_bytes = plan.resident.data_size;
  plan.total_bytes = plan.expert_bytes + plan.resident_bytes + plan.prediction.data_size;
  ConvertReport report = report_of(config.model.model_type, plan.pack.source.name, plan, options);
  report.layers_resumed = plan.pack.expert_layers();
  report.finished = true;
  return report;
}

}  // namespace

Result<ConvertReport> plan_conversion(const ConvertOptions& options) {
  MOE_RETURN_IF_ERROR(OutputDirectory::check(options.output).status());
  MOE_ASSIGN_OR_RETURN(const ModelSource source,
                       ModelSource::open(options.source, options.output / kSavedHeadersDirectory));
  MOE_RETURN_IF_ERROR(check_reclaim(source, options));
  MOE_ASSIGN_OR_RETURN(ConvertPlan plan, make_plan(source, options));
  MOE_RETURN_IF_ERROR(add_companions(source, options.tokenizer, plan));
  ConvertReport report =
      report_of(source.config().model.model_type, source.path().string(), plan, options);
  MOE_ASSIGN_OR_RETURN(report.needed_bytes, Conversion::foresee(source, plan, options));
  MOE_ASSIGN_OR_RETURN(report.estimated_seconds,
                       estimate_seconds(plan, existing_parent(options.output), report.threads));
  return report;
}

Result<ConvertReport> convert_checkpoint(const ConvertOptions& options,
                                         const ProgressCallback& progress) {
  const auto start = Clock::now();
  MOE_ASSIGN_OR_RETURN(const bool interrupted, OutputDirectory::check(options.output));
  auto opened = ModelSource::open(options.source, options.output / kSavedHeadersDirectory);
  if (!opened.is_ok() && interrupted) {
    MOE_ASSIGN_OR_RETURN(const bool finished, finish_complete_one(options.output));
    if (finished) return report_of_finished(options);
  }
  MOE_ASSIGN_OR_RETURN(ModelSource source, std::move(opened));
  MOE_RETURN_IF_ERROR(check_reclaim(source, options));
  MOE_ASSIGN_OR_RETURN(ConvertPlan plan, make_plan(source, options));
  MOE_RETURN_IF_ERROR(add_companions(source, options.tokenizer, plan));
  ConvertReport report =
      report_of(source.config().model.model_type, source.path().string(), plan, options);
  MOE_ASSIGN_OR_RETURN(OutputDirectory output, OutputDirectory::take(options.output));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Conversion> conversion,
                       Conversion::prepare(source, plan, options, output));
  report.needed_bytes = conversion->space_needed();
  report.read_bytes = conversion->bytes_to_read();
  report.layers_resumed = conversion->layers_resumed();
  report.free_bytes = free_space(options.output);
  MOE_RETURN_IF_ERROR(check_space(options.output, "the conversion", report.needed_bytes,
                                  report.free_bytes,
                                  "free some space or name another output directory"));
  MOE_RETURN_IF_ERROR(conversion->run(progress));
  report.layers_left = conversion->layers_left();
  report.finished = report.layers_left == 0;
  const std::set<std::string>& not_finite = conversion->not_finite_tensors();
  report.not_finite_tensors.assign(not_finite.begin(), not_finite.end());
  report.removed_shards = conversion->removed_shards();
  report.kept_shards = conversion->never_removed_shards();
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace moepack
