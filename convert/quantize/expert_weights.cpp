#include "convert/quantize/expert_weights.h"

#include <system_error>

#include "convert/job/options.h"
#include "convert/report/pack_summary.h"
#include "convert/source/path_kind.h"
#include "formats/base/checksum.h"
#include "formats/base/file_blocks.h"
#include "formats/base/paths.h"
#include "formats/model_dir.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> pack_names(const fs::path& model) {
  auto names = list_packs(model);
  return names.is_ok() ? std::move(names).value() : std::vector<std::string>();
}

// The recorded source of one of the model's packs, where it can be found.
std::optional<fs::path> recorded_checkpoint(const fs::path& model, const PackSource& source) {
  if (source.fingerprint == 0 || !is_plain_file_name(source.name)) return std::nullopt;
  const fs::path beside = directory_above(model);
  for (const fs::path& path : {beside / source.name, fs::path(source.name)}) {
    if (has_gguf_name(path)) {
      const auto gguf = GgufModel::open(path);
      if (gguf.is_ok() && gguf.value().fingerprint() == source.fingerprint) return path;
    } else if (is_folder(path)) {
      const auto checkpoint = Checkpoint::open_tensors(path);
      if (checkpoint.is_ok() && checkpoint.value().fingerprint() == source.fingerprint) return path;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<ExpertWeights> ExpertWeights::of_checkpoint(const fs::path& path,
                                                   const ModelConfig& config) {
  ExpertWeights weights;
  MOE_ASSIGN_OR_RETURN(ModelSource model, ModelSource::open(path));
  MOE_RETURN_IF_ERROR(model.check_usable_in_place());
  MOE_RETURN_IF_ERROR(
      model.check_family(config.model_type, "name the checkpoint that the model was made from"));
  weights.model_ = std::make_unique<ModelSource>(std::move(model));
  MOE_ASSIGN_OR_RETURN(ConvertPlan plan, make_plan(*weights.model_, ConvertOptions{}));
  weights.plan_ = std::make_unique<ConvertPlan>(std::move(plan));
  const PackManifest& pack = weights.plan_->pack;
  MOE_RETURN_IF_ERROR(check_pack_fits(config, pack, path));
  weights.source_ = pack.source;
  weights.bits_per_weight_ = pack_bits_per_weight(pack);
  weights.formats_ = pack_formats(pack);
  weights.description_ = "checkpoint " + path.string() + " (" + weights.formats_ + ")";
  return weights;
}

Result<ExpertWeights> ExpertWeights::of_pack(const fs::path& model, const std::string& name,
                                             const ModelConfig& config) {
  ExpertWeights weights;
  weights.pack_ = std::make_unique<Pack>();
  MOE_ASSIGN_OR_RETURN(weights.pack_->manifest,
                       read_pack_directory(model / name, pack_dimensions(config)));
  const PackManifest& pack = weights.pack_->manifest;
  MOE_RETURN_IF_ERROR(check_pack_fits(config, pack, model / name));
  for (const LayerEntry& layer : pack.layers) {
    weights.pack_->files.emplace_back();
    if (layer.experts.empty()) continue;
    MOE_ASSIGN_OR_RETURN(File file, File::open(model / name / layer.file));
    weights.pack_->files.back() = std::make_unique<File>(std::move(file));
  }
  weights.source_ = pack.source;
  weights.page_size_ = pack.page_size;
  weights.bits_per_weight_ = pack_bits_per_weight(pack);
  weights.formats_ = pack_formats(pack);
  weights.description_ = "pack " + name + " (" + weights.formats_ + ")";
  return weights;
}

ExpertActivation expert_activation(const ModelConfig& config, std::uint32_t layer) {
  return std::get<ExpertsSpec>(config.layers[layer].feed_forward).activation;
}

Result<ExpertWeights> ExpertWeights::open(const fs::path& model, const ModelConfig& config,
                                          const std::string& wanted) {
  const std::vector<std::string> packs = pack_names(model);
  if (!wanted.empty()) {
    for (const std::string& name : packs) {
      if (name != wanted && name != std::string(kDefaultPackName) + "_" + wanted) continue;
      return of_pack(model, name, config);
    }
    if (is_folder(wanted) || has_gguf_name(wanted)) return of_checkpoint(wanted, config);
    return not_found(
        Where{.file = wanted}, "is neither a checkpoint nor a pack of " + printable(model.string()),
        "give --from the directory of the checkpoint, a GGUF file, or the name of a pack");
  }
  std::optional<ExpertWeights> best;
  for (const std::string& name : packs) {
    MOE_ASSIGN_OR_RETURN(ExpertWeights candidate, of_pack(model, name, config));
    const auto found = recorded_checkpoint(model, candidate.source_);
    if (found.has_value()) return of_checkpoint(*found, config);
    if (!best.has_value() || candidate.bits_per_weight_ > best->bits_per_weight_) {
      best = std::move(candidate);
    }
  }
  if (best.has_value()) return std::move(*best);
  const std::string path = model.string();
  return not_found(Where{.file = path}, "holds no pack to start from",
                   "give --from the directory of the checkpoint");
}

StoredMatrix ExpertWeights::of(std::uint32_t layer, std::uint32_t expert,
                               Projection projection) const {
  if (plan_ != nullptr) return stored_matrix(plan_->experts.of(layer, expert, projection));
  const PackManifest& pack = pack_->manifest;
  return stored_matrix(pack.layout_of(layer, expert).of(projection), *pack_->files[layer],
                       pack.layers[layer].experts[expert].offset);
}

Status ExpertWeights::check(std::uint32_t layer, std::uint32_t expert,
                            std::vector<std::byte>& buffer) const {
  if (pack_ == nullptr || !pack_->manifest.has_checksums) return Status::ok();
  const ExpertEntry& entry = pack_->manifest.layers[layer].experts[expert];
  const std::uint64_t end = entry.offset + pack_->manifest.layout_of(layer, expert).record_bytes;
  MOE_ASSIGN_OR_RETURN(const std::uint64_t found,
                       checksum_of_range(*pack_->files[layer], entry.offset, end, buffer));
  if (found == entry.checksum) return Status::ok();
  return corrupt(Where{.file = pack_->files[layer]->path(), .offset = entry.offset},
                 "expert " + std::to_string(expert) + " has checksum " + checksum_text(found) +
                     ", the manifest says " + checksum_text(entry.checksum),
                 "convert the model again, or start from another source with --from");
}

std::uint64_t ExpertWeights::digest() const {
  PackManifest manifest = pack_ != nullptr ? pack_->manifest : plan_->pack;
  manifest.source.name.clear();
  manifest.report_json.clear();
  const std::string text =
      (pack_ != nullptr ? "pack\n" : "checkpoint\n") + pack_manifest_text(manifest);
  return checksum(std::as_bytes(std::span(text)));
}

std::uint64_t ExpertWeights::bytes(std::uint32_t layer, std::uint32_t expert) const {
  if (plan_ != nullptr) return plan_->experts.bytes(layer, expert);
  return pack_->manifest.layout_of(layer, expert).record_bytes;
}

}  // namespace moepack
