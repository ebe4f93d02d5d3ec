#include "convert/source/expert_source.h"

#include <map>

#include "formats/weights/format_json.h"

namespace moepack {
namespace {

// The modules of one layer, as they are named.
struct LayerModules {
  std::array<SourceModule, kExpertMatrices> stacked;
  std::map<std::uint32_t, std::array<SourceModule, kProjections>> single;  // by expert
};

std::size_t index_of(Projection p) { return static_cast<std::size_t>(p); }

// Projection and ExpertMatrix share the first three enumerators.
const SourceModule& stacked_module(const LayerModules& layer, Projection p) {
  return layer.stacked[index_of(p)];
}

const SourceModule& fused_module(const LayerModules& layer) {
  return layer.stacked[static_cast<std::size_t>(ExpertMatrix::kGateUp)];
}

class Builder {
 public:
  Builder(const ModelConfig& config, const DeclaredFormats& declared, const SourceNaming& naming)
      : config_(config), declared_(declared), naming_(naming), layers_(config.num_layers) {}

  Status collect(std::span<const ExpertTensor> tensors) {
    for (const ExpertTensor& entry : tensors) {
      const TensorName& name = entry.name;
      if (name.layer >= config_.num_layers) {
        return corrupt(entry.tensor.where(), "is of layer " + std::to_string(name.layer) +
                                                 ", but " + naming_.configured_by() + " gives " +
                                                 std::to_string(config_.num_layers) + " layers");
      }
      if (!has_experts(config_.layers[name.layer])) {
        return corrupt(entry.tensor.where(), "is of an expert, but " + naming_.configured_by() +
                                                 " gives layer " + std::to_string(name.layer) +
                                                 " none");
      }
      LayerModules& layer = layers_[name.layer];
      const auto matrix = static_cast<std::size_t>(name.matrix);
      if (!name.expert.has_value()) {
        MOE_RETURN_IF_ERROR(layer.stacked[matrix].add(name.part, entry.tensor));
        continue;
      }
      if (*name.expert >= config_.num_experts) {
        return corrupt(entry.tensor.where(), "is of expert " + std::to_string(*name.expert) +
                                                 ", but config.json gives " +
                                                 std::to_string(config_.num_experts) + " experts");
      }
      MOE_RETURN_IF_ERROR(layer.single[*name.expert][matrix].add(name.part, entry.tensor));
    }
    return Status::ok();
  }

  Status resolve(std::vector<SourceMatrix>& out) {
    for (std::uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      // Before anything of the configuration's size is allocated, the tensors must bear it out.
      const bool is_dense = !has_experts(config_.layers[layer]);
      for (Projection p : kAllProjections) {
        if (!is_dense) MOE_RETURN_IF_ERROR(check_present(layer, p));
      }
      out.resize(out.size() + std::size_t{config_.num_experts} * kProjections);
      if (is_dense) continue;
      for (Projection p : kAllProjections) MOE_RETURN_IF_ERROR(resolve(layer, p, out));
    }
    return Status::ok();
  }

 private:
  std::uint64_t rows(Projection p) const {
    return p == Projection::kDown ? config_.hidden_size : config_.expert_width;
  }
  std::uint64_t cols(Projection p) const {
    return p == Projection::kDown ? config_.expert_width : config_.hidden_size;
  }

  // Of a tensor that holds `matrices` projections of each expert.
  std::array<std::uint64_t, 3> stacked_shape(Projection p, std::uint64_t matrices) const {
    return {config_.num_experts, matrices * rows(p), cols(p)};
  }

  Result<std::shared_ptr<const ModuleForm>> form_of(const SourceModule& module,
                                                    std::span<const std::uint64_t> shape) const {
    MOE_ASSIGN_OR_RETURN(ModuleForm form, recognise_module(module, shape, declared_.source()));
    MOE_RETURN_IF_ERROR(declared_.check(form));
    return std::make_shared<const ModuleForm>(std::move(form));
  }

  // Whether a tensor of all experts is [E, inputs, outputs].
  bool is_transposed(const SourceModule& module) const {
    const SourceTensor& codes = module.codes();
    return names().is_transposed && !codes.is_gguf() && codes.format().has_value() &&
           !codes.name().ends_with(".weight");
  }
  bool is_interleaved(const SourceModule& fused) const {
    return names().is_interleaved && !fused.codes().is_gguf();
  }
  const ExpertNames& names() const { return *naming_.names().experts; }

  // The form of a tensor of all experts that holds `matrices` projections of each.
  Result<std::shared_ptr<const ModuleForm>> stacked_form(const SourceModule& module, Projection p,
                                                         std::uint64_t matrices) const {
    std::array<std::uint64_t, 3> shape = stacked_shape(p, matrices);
    if (is_transposed(module)) std::swap(shape[1], shape[2]);
    return form_of(module, shape);
  }

  // Projection `p` of an expert within such a tensor.
  SourceMatrix of_stacked(const SourceModule& module, const std::shared_ptr<const ModuleForm>& form,
                          std::uint32_t expert, Projection p, bool is_fused) const {
    const std::uint64_t half = is_fused && p == Projection::kUp ? 1 : 0;
    const bool by_turns = is_fused && is_interleaved(module);
    const std::uint64_t first = by_turns ? half : half * rows(p);
    if (is_transposed(module)) {
      const auto moved = std::make_shared<const ModuleForm>(
          transposed_form(*form, rows(p), cols(p), first, by_turns ? 2 : 1));
      return slice_matrix(moved, expert, 0, rows(p));
    }
    if (!by_turns) return slice_matrix(form, expert, first, rows(p));
    return gather_rows(slice_matrix(form, expert, 0, 2 * rows(p)),
                       {{.first = first, .rows = 1, .stride = 2, .count = rows(p)}});
  }

  Status missing(std::uint32_t layer, std::uint32_t expert, Projection p) const {
    return not_found(Where{.file = naming_.place(), .tensor = naming_.expert(layer, expert, p)},
                     "is missing, and no stacked or fused tensor holds it",
                     "the checkpoint is incomplete; download it again");
  }

  Status check_present(std::uint32_t layer, Projection p) const {
    const LayerModules& modules = layers_[layer];
    const SourceModule& alone = stacked_module(modules, p);
    const SourceModule& fused = fused_module(modules);
    if (alone.codes()) return stacked_form(alone, p, 1).status();
    if (p != Projection::kDown && fused.codes()) return stacked_form(fused, p, 2).status();
    for (std::uint32_t e = 0; e < config_.num_experts; ++e) {
      const auto it = modules.single.find(e);
      if (it != modules.single.end() && it->second[index_of(p)].codes()) continue;
      return missing(layer, e, p);
    }
    return Status::ok();
  }

  Status resolve(std::uint32_t layer, Projection p, std::vector<SourceMatrix>& out) const {
    const LayerModules& modules = layers_[layer];
    const SourceModule& alone = stacked_module(modules, p);
    const SourceModule& fused = fused_module(modules);
    const bool use_fused = p != Projection::kDown && fused.codes();
    if (use_fused && alone.codes()) {
      return corrupt(alone.codes().where(),
                     "means the same as tensor " + printable(fused.codes().name()));
    }
    if (!use_fused && !alone.codes()) return resolve_single(layer, p, out);
    for (const auto& [id, expert] : modules.single) {
      const SourceModule& module = expert[index_of(p)];
      if (!module.codes()) continue;
      return corrupt(module.codes().where(),
                     "means the same as a part of tensor " +
                         printable((use_fused ? fused : alone).codes().name()));
    }
    const SourceModule& module = use_fused ? fused : alone;
    MOE_ASSIGN_OR_RETURN(const std::shared_ptr<const ModuleForm> form,
                         stacked_form(module, p, use_fused ? 2 : 1));
    for (std::uint32_t e = 0; e < config_.num_experts; ++e) {
      at(out, layer, e, p) = of_stacked(module, form, e, p, use_fused);
    }
    return Status::ok();
  }

  Status resolve_single(std::uint32_t layer, Projection p, std::vector<SourceMatrix>& out) const {
    const LayerModules& modules = layers_[layer];
    const std::array<std::uint64_t, 2> shape{rows(p), cols(p)};
    for (std::uint32_t e = 0; e < config_.num_experts; ++e) {
      const SourceModule& module = modules.single.at(e)[index_of(p)];
      MOE_ASSIGN_OR_RETURN(const std::shared_ptr<const ModuleForm> form, form_of(module, shape));
      at(out, layer, e, p) = slice_matrix(form, 0, 0, rows(p));
    }
    return Status::ok();
  }

  SourceMatrix& at(std::vector<SourceMatrix>& out, std::uint32_t layer, std::uint32_t expert,
                   Projection p) const {
    return out[(std::size_t{layer} * config_.num_experts + expert) * kProjections + index_of(p)];
  }

  const ModelConfig& config_;
  const DeclaredFormats& declared_;
  const SourceNaming& naming_;
  std::vector<LayerModules> layers_;
};

}  // namespace

Result<ExpertSource> ExpertSource::build(const ModelConfig& config, const DeclaredFormats& declared,
                                         std::span<const ExpertTensor> tensors,
                                         const SourceNaming& naming) {
  Builder builder(config, declared, naming);
  MOE_RETURN_IF_ERROR(builder.collect(tensors));
  ExpertSource source;
  source.num_experts_ = config.num_experts;
  MOE_RETURN_IF_ERROR(builder.resolve(source.matrices_));
  return source;
}

bool ExpertSource::has_data(std::uint32_t layer, std::uint32_t expert) const {
  for (Projection p : kAllProjections) {
    for (const TensorSlice& slice : of(layer, expert, p).slices) {
      if (slice.tensor && !slice.tensor.has_data()) return false;
    }
  }
  return true;
}

std::uint64_t ExpertSource::bytes(std::uint32_t layer, std::uint32_t expert) const {
  std::uint64_t total = 0;
  for (Projection p : kAllProjections) total += of(layer, expert, p).bytes();
  return total;
}

}  // namespace moepack
