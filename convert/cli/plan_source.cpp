#include "convert/cli/plan_source.h"

#include <utility>

#include "convert/pack/header_plan.h"
#include "convert/pack/plan.h"
#include "convert/source/path_kind.h"

namespace moepack::cli {
namespace {

namespace fs = std::filesystem;

std::uint64_t pack_file_bytes(const PackManifest& pack) {
  std::uint64_t bytes = 0;
  for (const LayerEntry& layer : pack.layers) bytes += layer.file_size;
  return bytes;
}

Result<PlanSource> of_model(const EngineOptions& selection, const ConvertOptions& convert) {
  if (convert.expert_format.has_value() || convert.resident_format.has_value()) {
    return invalid_argument("the model is converted already, its formats cannot be chosen",
                            "leave --expert-format and --resident out, or name the checkpoint");
  }
  PlanSource source{.dir = {}, .kind = "model", .is_model = true};
  MOE_ASSIGN_OR_RETURN(source.dir,
                       open_model_dir(selection.model, selection.pack, selection.overlays,
                                      selection.store.pack_directories));
  MOE_ASSIGN_OR_RETURN(source.files, find_pack_files(source.dir.pack_path, source.dir.pack,
                                                     selection.store.pack_directories));
  source.directory = source.dir.pack_path;
  source.file = source.files.first();
  return source;
}

PlanSource of_plan(ConvertPlan plan, const ModelConfig& config) {
  PlanSource source;
  source.dir.config = config;
  source.dir.residents = std::move(plan.resident);
  source.dir.pack = std::move(plan.pack);
  source.converted_bytes = plan.total_bytes;
  source.notes = std::move(plan.notes);
  return source;
}

Result<PlanSource> of_weights(const fs::path& path, bool is_gguf, const ConvertOptions& convert) {
  MOE_ASSIGN_OR_RETURN(const ModelSource model, ModelSource::open(path));
  MOE_ASSIGN_OR_RETURN(ConvertPlan plan, make_plan(model, convert));
  PlanSource source = of_plan(std::move(plan), model.config().model);
  source.kind = is_gguf ? "gguf" : "checkpoint";
  if (is_gguf) source.file = path;
  source.directory = is_gguf ? path.parent_path() : model.path();
  if (source.directory.empty()) source.directory = ".";
  return source;
}

Result<PlanSource> of_headers(const fs::path& path, const ConvertOptions& convert) {
  MOE_ASSIGN_OR_RETURN(HeaderPlan plan, plan_from_headers(path, convert));
  PlanSource source{.dir = {}, .kind = "headers", .directory = path};
  source.converted_bytes = plan.residents.data_size + pack_file_bytes(plan.pack);
  source.dir.config = std::move(plan.config);
  source.dir.residents = std::move(plan.residents);
  source.dir.pack = std::move(plan.pack);
  source.notes = std::move(plan.notes);
  return source;
}

}  // namespace

Result<PlanSource> open_plan_source(const EngineOptions& selection, const ConvertOptions& convert) {
  const fs::path& path = selection.model;
  MOE_ASSIGN_OR_RETURN(const PathKind kind, find_path_kind(path));
  if (kind == PathKind::kModel) return of_model(selection, convert);
  if (!selection.pack.empty() || !selection.overlays.empty() ||
      !selection.store.pack_directories.empty()) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = path.string()},
                      "is no model directory, and has neither packs nor overlays",
                      "leave --pack, --pack-dir and --overlay out");
  }
  if (kind == PathKind::kPack || kind == PathKind::kSafetensors) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = path.string()},
                      "is only a part of a model", "name the directory that holds it");
  }
  if (kind == PathKind::kGguf) return of_weights(path, true, convert);
  return lacks_shards(path) ? of_headers(path, convert) : of_weights(path, false, convert);
}

}  // namespace moepack::cli
