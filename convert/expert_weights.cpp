#include "convert/expert_weights.h"

#include <set>
#include <system_error>

#include "convert/options.h"
#include "formats/checksum.h"
#include "formats/model_dir.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

double bits_of(const PackManifest& pack) {
  double bits = 0;
  double weights = 0;
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      const ExpertLayout& layout = pack.layout_of(l, e);
      bits += 8.0 * static_cast<double>(layout.record_bytes);
      for (const ProjectionLayout& p : layout.projections) {
        weights += static_cast<double>(p.rows) * static_cast<double>(p.cols);
      }
    }
  }
  return weights > 0 ? bits / weights : 0;
}

std::string formats_of(const PackManifest& pack) {
  std::set<std::string> names;
  for (const ExpertLayout& layout : pack.layouts) {
    for (const ProjectionLayout& p : layout.projections) names.insert(to_string(p.format));
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_directory(const fs::path& path) {
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
  const fs::path beside = fs::absolute(model / "").lexically_normal().parent_path().parent_path();
  for (const fs::path& path : {beside / source.name, fs::path(source.name)}) {
    if (!is_directory(path)) continue;
    const auto checkpoint = Checkpoint::open_tensors(path);
    if (checkpoint.is_ok() && checkpoint.value().fingerprint() == source.fingerprint) return path;
  }
  return std::nullopt;
}

}  // namespace

Result<ExpertWeights> ExpertWeights::of_checkpoint(const fs::path& path,
                                                   const ModelConfig& config) {
  ExpertWeights weights;
  MOE_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(path));
  weights.checkpoint_ = std::make_unique<Checkpoint>(std::move(checkpoint));
  MOE_ASSIGN_OR_RETURN(ConvertPlan plan, make_plan(*weights.checkpoint_, ConvertOptions{}));
  weights.plan_ = std::make_unique<ConvertPlan>(std::move(plan));
  const PackManifest& pack = weights.plan_->pack;
  MOE_RETURN_IF_ERROR(check_pack_fits(config, pack, path));
  weights.source_ = pack.source;
  weights.bits_per_weight_ = bits_of(pack);
  weights.description_ = "checkpoint " + path.string() + " (" + formats_of(pack) + ")";
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
    MOE_ASSIGN_OR_RETURN(File file, File::open(model / name / layer.file));
    weights.pack_->files.push_back(std::move(file));
  }
  weights.source_ = pack.source;
  weights.page_size_ = pack.page_size;
  weights.bits_per_weight_ = bits_of(pack);
  weights.description_ = "pack " + name + " (" + formats_of(pack) + ")";
  return weights;
}

Result<ExpertWeights> ExpertWeights::open(const fs::path& model, const ModelConfig& config,
                                          const std::string& wanted) {
  const std::vector<std::string> packs = pack_names(model);
  if (!wanted.empty()) {
    for (const std::string& name : packs) {
      if (name != wanted && name != std::string(kDefaultPackName) + "_" + wanted) continue;
      return of_pack(model, name, config);
    }
    if (is_directory(wanted)) return of_checkpoint(wanted, config);
    return not_found(Where{.file = wanted},
                     "is neither a checkpoint nor a pack of " + printable(model.string()),
                     "give --from the directory of the checkpoint, or the name of a pack");
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
  return stored_matrix(pack.layout_of(layer, expert).of(projection), pack_->files[layer],
                       pack.layers[layer].experts[expert].offset);
}

std::uint64_t ExpertWeights::bytes(std::uint32_t layer, std::uint32_t expert) const {
  if (plan_ != nullptr) return plan_->experts.bytes(layer, expert);
  return pack_->manifest.layout_of(layer, expert).record_bytes;
}

}  // namespace moepack
