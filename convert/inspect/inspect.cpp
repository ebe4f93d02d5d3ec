#include "convert/inspect/inspect.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>

#include "convert/inspect/inspect_gguf.h"
#include "convert/pack/plan.h"
#include "convert/report/format_tally.h"
#include "convert/report/pack_report.h"
#include "convert/source/expert_name.h"
#include "convert/source/model_files.h"
#include "formats/base/bytes.h"
#include "formats/base/paths.h"
#include "formats/config/companion_files.h"
#include "formats/flashmoe/flashmoe_resident.h"
#include "formats/model_dir.h"
#include "formats/pack/prediction_manifest.h"
#include "formats/pack/resident_files.h"
#include "formats/unfinished_work.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

void name_attention(const std::optional<ModelConfig>& config, std::vector<LayerSummary>& layers) {
  if (!config.has_value()) return;
  for (std::size_t i = 0; i < std::min(layers.size(), config->layers.size()); ++i) {
    layers[i].attention = layer_type_name(config->layer_type(i));
  }
}

// Experts of a pack, or of what convert would make with everything as it is.
std::vector<LayerSummary> expert_layers(const PackManifest& pack) {
  std::vector<LayerSummary> layers;
  for (const LayerEntry& layer : pack.layers) {
    LayerSummary summary;
    FormatTallies formats;
    std::set<std::uint64_t> sizes;
    for (const ExpertEntry& expert : layer.experts) {
      const ExpertLayout& layout = pack.layouts[expert.layout];
      for (const ProjectionLayout& part : layout.projections) {
        formats.add(to_string(part.format), part.bytes.total());
      }
      sizes.insert(layout.record_bytes);
      summary.expert_bytes += layout.record_bytes;
    }
    summary.expert_formats = format_names(formats.sorted());
    summary.expert_size = sizes.size() == 1 ? *sizes.begin() : 0;
    layers.push_back(std::move(summary));
  }
  return layers;
}

std::vector<FormatTally> expert_formats(const PackManifest& pack) {
  FormatTallies formats;
  for (const LayerEntry& layer : pack.layers) {
    for (const ExpertEntry& expert : layer.experts) {
      for (const ProjectionLayout& part : pack.layouts[expert.layout].projections) {
        formats.add(to_string(part.format), part.bytes.total());
      }
    }
  }
  return formats.sorted();
}

std::vector<FormatTally> resident_formats(const ResidentManifest& residents) {
  FormatTallies formats;
  for (const ResidentTensor& t : residents.tensors)
    formats.add(to_string(t.format), t.bytes.total());
  return formats.sorted();
}

void add_plan(const ConvertPlan& plan, CheckpointSummary& summary) {
  summary.skipped_tensors = plan.skipped;
  summary.expert_formats = expert_formats(plan.pack);
  summary.resident_formats = resident_formats(plan.resident);
  summary.layers = expert_layers(plan.pack);
  for (const LayerSummary& layer : summary.layers) summary.expert_bytes += layer.expert_bytes;
  for (std::size_t i = 0; i < plan.resident_sources.size(); ++i) {
    const std::uint64_t bytes = plan.resident_sources[i].bytes();
    summary.resident_bytes += bytes;
    std::string_view name = plan.resident.tensors[i].name;
    constexpr std::string_view kLayers = "model.layers.";
    if (!name.starts_with(kLayers)) continue;
    name.remove_prefix(kLayers.size());
    const auto layer = std::stoul(std::string(name.substr(0, 9)));  // checked by make_plan
    summary.layers[layer].resident_bytes += bytes;
  }
}

CheckpointSummary summarize(const Checkpoint& checkpoint) {
  CheckpointSummary summary;
  FormatTallies dtypes;
  std::set<const SafetensorsFile*> files;
  for (const TensorRef& tensor : checkpoint.tensors()) {
    dtypes.add(std::string(dtype_name(tensor.info->dtype)), tensor.info->size);
    files.insert(tensor.shard);
    summary.bytes += tensor.info->size;
  }
  summary.num_files = files.size();
  summary.num_tensors = checkpoint.tensors().size();
  summary.fingerprint = checkpoint.fingerprint();
  summary.dtypes = dtypes.sorted();
  return summary;
}

Status inspect_checkpoint(const fs::path& path, Inspection& out) {
  if (out.kind == PathKind::kSafetensors) {
    MOE_ASSIGN_OR_RETURN(const Checkpoint file, Checkpoint::open_tensors(path));
    out.checkpoint = summarize(file);
    return Status::ok();
  }
  auto opened = ModelSource::open(path);
  if (opened.status().code() == StatusCode::kUnsupported) {
    // Another kind of model, most likely: the tensors can be listed all the same.
    MOE_ASSIGN_OR_RETURN(const Checkpoint other, Checkpoint::open_tensors(path));
    out.path = other.directory().string();
    out.checkpoint = summarize(other);
    out.checkpoint->problem = opened.status().message();
    return Status::ok();
  }
  MOE_ASSIGN_OR_RETURN(const ModelSource source, std::move(opened));
  out.path = source.path().string();
  out.config = source.config().model;
  out.checkpoint = summarize(*source.checkpoint());
  const auto plan = make_plan(source, ConvertOptions{});
  if (plan.is_ok()) {
    add_plan(plan.value(), *out.checkpoint);
    out.notes = plan.value().notes;
  } else {
    out.checkpoint->problem = plan.status().message();
  }
  name_attention(out.config, out.checkpoint->layers);
  return Status::ok();
}

Result<PackSummary> summarize_pack(const fs::path& path, const PackManifest& pack,
                                   std::size_t num_worst) {
  MOE_ASSIGN_OR_RETURN(PackReport report, read_pack_report(path));
  PackSummary summary;
  summary.name = directory_name(path);
  summary.num_layers = pack.num_layers;
  summary.num_experts = pack.num_experts;
  summary.hidden_size = pack.hidden_size;
  summary.expert_width = pack.expert_width;
  summary.page_size = pack.page_size;
  summary.expert_size = pack.layouts.front().record_bytes;
  summary.expert_stride = align_up(summary.expert_size, pack.page_size);
  summary.num_layouts = pack.layouts.size();
  for (const LayerEntry& layer : pack.layers) summary.bytes += layer.file_size;
  summary.formats = expert_formats(pack);
  summary.has_checksums = pack.has_checksums;
  summary.source = pack.source;
  summary.skipped_tensors = std::move(report.skipped_tensors);
  summary.notes = std::move(report.notes);
  if (report.ledger.has_value()) {
    summary.quality = summarize_quality(*report.ledger, pack, num_worst);
  }
  summary.layers = expert_layers(pack);
  return summary;
}

Result<PackSummary> summarize_pack_at(const fs::path& path, const PackDimensions& dims,
                                      std::size_t num_worst) {
  MOE_ASSIGN_OR_RETURN(const PackManifest pack, read_pack_directory(path, dims));
  return summarize_pack(path, pack, num_worst);
}

Result<ResidentSummary> summarize_residents(const fs::path& model, const ModelConfig& config) {
  MOE_ASSIGN_OR_RETURN(const ResidentManifest residents, read_model_residents(model, config));
  return ResidentSummary{.model = residents.model,
                         .bytes = residents.data_size,
                         .num_tensors = residents.tensors.size(),
                         .formats = resident_formats(residents),
                         .has_checksum = residents.has_checksum,
                         .conventions = residents.conventions};
}

Result<std::optional<PredictionSummary>> summarize_prediction(const fs::path& model) {
  MOE_ASSIGN_OR_RETURN(const auto manifest, read_prediction_manifest(model));
  if (!manifest.has_value()) return std::optional<PredictionSummary>();
  PredictionSummary summary{.source = manifest->source,
                            .quantization = manifest->quantization,
                            .num_tensors = manifest->tensors.size(),
                            .bytes = manifest->data_size,
                            .types = {}};
  FormatTallies types;
  for (const PredictionTensor& tensor : manifest->tensors) types.add(tensor.type, tensor.size);
  summary.types = types.sorted();
  return std::optional(std::move(summary));
}

// How far an interrupted conversion came: layer files appear under their names when complete.
void note_written_layers(const fs::path& model, Inspection& out) {
  const WorkKind work = find_unfinished_work(model);
  out.unfinished_by = work_command(work);
  if (work != WorkKind::kConversion && work != WorkKind::kUnknown) return;
  const fs::path pack = model / kDefaultPackName;
  if (is_there(pack / kPackManifestName)) return;
  std::uint32_t layers = 0;
  std::error_code error;
  for (fs::directory_iterator at(pack, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("layer_") && name.ends_with(".bin")) ++layers;
  }
  out.notes.push_back(std::string(kDefaultPackName) + ": " + std::to_string(layers) +
                      " layer files are complete; moepack convert goes on from there");
}

Result<std::vector<OverlaySummary>> summarize_overlays(const fs::path& path,
                                                       const ModelConfig& config) {
  MOE_ASSIGN_OR_RETURN(const std::vector<ResidentOverlay> overlays,
                       read_resident_overlays(path, config, list_overlay_groups(path)));
  std::vector<OverlaySummary> out;
  for (const ResidentOverlay& overlay : overlays) {
    OverlaySummary summary{.name = overlay.data_name(),
                           .group = std::string(overlay_group_name(overlay.group)),
                           .matrices = overlay.tensors.size(),
                           .bytes = overlay.data_size,
                           .formats = {},
                           .source = overlay.source.name};
    FormatTallies formats;
    for (const OverlayTensor& entry : overlay.tensors) {
      formats.add(to_string(entry.tensor.format), entry.tensor.bytes.codes());
    }
    summary.formats = formats.sorted();
    out.push_back(std::move(summary));
  }
  return out;
}

Status inspect_model(const fs::path& path, std::size_t num_worst, Inspection& out) {
  out.unfinished = is_there(path / kUnfinishedMarker);
  // Of an unfinished model anything may be missing.
  const auto passed = [&out](const Status& status) {
    if (status.is_ok() || !out.unfinished) return status.is_ok();
    out.notes.push_back(status.message());
    return true;
  };
  if (is_there(path / "config.json") || !out.unfinished) {
    auto parsed = read_model_config(path / "config.json");
    if (!passed(parsed.status())) return parsed.status();
    if (parsed.is_ok()) out.config = std::move(parsed.value().model);
  }
  if (is_there(path / kResidentManifestName) || !out.unfinished) {
    auto residents = summarize_residents(path, out.config.value_or(ModelConfig{}));
    if (!passed(residents.status())) return residents.status();
    if (residents.is_ok()) out.residents = std::move(residents).value();
  }
  if (out.config.has_value()) {
    MOE_ASSIGN_OR_RETURN(out.overlays, summarize_overlays(path, *out.config));
  }
  auto prediction = summarize_prediction(path);
  if (!passed(prediction.status())) return prediction.status();
  if (prediction.is_ok()) out.prediction = std::move(prediction).value();
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> packs, list_packs(path));
  const PackDimensions dims = pack_dimensions(out.config.value_or(ModelConfig{}));
  for (const std::string& name : packs) {
    auto pack = summarize_pack_at(path / name, dims, num_worst);
    if (!passed(pack.status())) return pack.status();
    if (!pack.is_ok()) continue;
    name_attention(out.config, pack.value().layers);
    out.packs.push_back(std::move(pack).value());
  }
  if (out.unfinished) note_written_layers(path, out);
  for (const CompanionFile& companion : kCompanionFiles) {
    if (!is_there(path / companion.name)) out.absent_files.emplace_back(companion.name);
  }
  return Status::ok();
}

void list_matrix(const std::string& name, bool has_suffix, const WeightFormat& format,
                 const std::vector<std::uint64_t>& shape, const MatrixBytes& bytes,
                 const Components<std::uint64_t>& offsets, const std::string& file,
                 const TensorVisitor& visit) {
  for (Component c : stored_components(format)) {
    ListedTensor tensor;
    tensor.name = has_suffix ? name + std::string(component_suffix(c)) : name;
    tensor.dtype = dtype_name(component_dtype(format, c));
    if (c == Component::kCodes) tensor.format = to_string(format);
    tensor.shape = component_shape(format, c, shape);
    tensor.file = file;
    tensor.offset = offsets[c];
    tensor.bytes = bytes[c];
    visit(tensor);
  }
}

void list_pack(const PackManifest& pack, const std::string& prefix, const TensorVisitor& visit) {
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    for (std::uint32_t e = 0; e < pack.experts_of(l); ++e) {
      const std::uint64_t at = pack.layers[l].experts[e].offset;
      for (Projection p : kAllProjections) {
        const ProjectionLayout& part = pack.layout_of(l, e).of(p);
        Components<std::uint64_t> offsets;
        for (Component c : stored_components(part.format)) offsets[c] = at + part.offset_of(c);
        list_matrix(expert_name(l, e, p), true, part.format, {part.rows, part.cols}, part.bytes,
                    offsets, prefix + pack.layers[l].file, visit);
      }
    }
  }
}

Status list_prediction(const fs::path& path, const TensorVisitor& visit) {
  MOE_ASSIGN_OR_RETURN(const auto manifest, read_prediction_manifest(path));
  if (!manifest.has_value()) return Status::ok();
  for (const PredictionTensor& tensor : manifest->tensors) {
    visit({.name = tensor.name,
           .dtype = tensor.type,
           .format = {},
           .shape = tensor.shape,
           .file = kPredictionDataName,
           .offset = tensor.offset,
           .bytes = tensor.size});
  }
  return Status::ok();
}

Status list_model(const fs::path& path, const TensorVisitor& visit) {
  const bool unfinished = is_there(path / kUnfinishedMarker);
  ModelConfig config;
  if (is_there(path / "config.json") || !unfinished) {
    MOE_ASSIGN_OR_RETURN(const ParsedConfig parsed, read_model_config(path / "config.json"));
    config = parsed.model;
  }
  if (is_there(path / kResidentManifestName) || !unfinished) {
    MOE_ASSIGN_OR_RETURN(const ResidentManifest residents, read_model_residents(path, config));
    const std::vector<ResidentFile> files = resident_files(residents);
    for (const ResidentTensor& t : residents.tensors) {
      // The components of a tensor may lie in different files.
      list_matrix(t.name, t.has_weight_suffix, t.format, t.shape, t.bytes, t.offsets, {},
                  [&](const ListedTensor& component) {
                    const auto next = std::upper_bound(
                        files.begin(), files.end(), component.offset,
                        [](std::uint64_t at, const ResidentFile& f) { return at < f.begin; });
                    ListedTensor placed = component;
                    placed.file = std::prev(next)->name;
                    placed.offset -= std::prev(next)->begin;
                    visit(placed);
                  });
    }
  }
  MOE_RETURN_IF_ERROR(list_prediction(path, visit));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> packs, list_packs(path));
  for (const std::string& name : packs) {
    MOE_ASSIGN_OR_RETURN(const PackManifest pack,
                         read_pack_directory(path / name, pack_dimensions(config)));
    list_pack(pack, name + "/", visit);
  }
  return Status::ok();
}

}  // namespace

std::string format_names(const std::vector<FormatTally>& tallies) {
  std::string text;
  for (const FormatTally& tally : tallies) text += (text.empty() ? "" : ", ") + tally.format;
  return text;
}

Result<Inspection> inspect_path(const fs::path& path, std::size_t num_worst) {
  Inspection out;
  MOE_ASSIGN_OR_RETURN(out.kind, find_path_kind(path));
  out.path = path.string();
  if (out.kind == PathKind::kPack) {
    MOE_ASSIGN_OR_RETURN(const PackManifest pack, read_lone_pack(path));
    MOE_ASSIGN_OR_RETURN(PackSummary summary, summarize_pack(path, pack, num_worst));
    out.packs.push_back(std::move(summary));
  } else if (out.kind == PathKind::kGguf) {
    MOE_ASSIGN_OR_RETURN(out.gguf, summarize_gguf(path));
  } else if (out.kind == PathKind::kModel) {
    MOE_RETURN_IF_ERROR(inspect_model(path, num_worst, out));
  } else {
    MOE_RETURN_IF_ERROR(inspect_checkpoint(path, out));
  }
  return out;
}

Status list_tensors(const fs::path& path, const TensorVisitor& visit) {
  MOE_ASSIGN_OR_RETURN(const PathKind kind, find_path_kind(path));
  if (kind == PathKind::kPack) {
    MOE_ASSIGN_OR_RETURN(const PackManifest pack, read_lone_pack(path));
    list_pack(pack, {}, visit);
    return Status::ok();
  }
  if (kind == PathKind::kModel) return list_model(path, visit);
  if (kind == PathKind::kGguf) return list_gguf_tensors(path, visit);
  MOE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open_tensors(path));
  for (const TensorRef& tensor : checkpoint.tensors()) {
    visit({.name = tensor.info->name,
           .dtype = std::string(dtype_name(tensor.info->dtype)),
           .format = {},
           .shape = tensor.info->shape,
           .file = fs::path(tensor.shard->file().path()).filename().string(),
           .offset = tensor.info->offset,
           .bytes = tensor.info->size});
  }
  return Status::ok();
}

}  // namespace moepack
