#include "convert/quantize/quantize_plan.h"

#include <algorithm>

#include "convert/job/pack_name.h"
#include "convert/pack/layout_table.h"
#include "convert/pack/target_format.h"
#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "quant/tile.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

using Formats = std::array<WeightFormat, kProjections>;

Result<WeightFormat> format_of(std::uint32_t bits, std::uint32_t group_size) {
  const auto id = affine_qformat(bits);
  if (!id.has_value() || !is_valid_group_size(group_size)) {
    return invalid_argument("there is no affine format of " + std::to_string(bits) +
                                " bits in groups of " + std::to_string(group_size),
                            "take 2, 3, 4, 5, 6 or 8 bits and groups of 32, 64 or 128");
  }
  return WeightFormat{.id = *id, .group_size = group_size, .scale_type = DType::kBf16};
}

Result<Formats> formats_of(const QuantizeOptions& options, std::uint32_t layer,
                           std::uint32_t expert) {
  if (options.expert_bits.has_value()) {
    Formats formats;
    for (const Projection p : kAllProjections) {
      MOE_ASSIGN_OR_RETURN(
          formats[static_cast<std::size_t>(p)],
          format_of(options.expert_bits->of(layer, expert, p), options.group_size));
    }
    return formats;
  }
  std::uint32_t gate_up = options.gate_up_bits;
  std::uint32_t down = options.down_bits;
  for (const LayerBits& other : options.layer_bits) {
    if (other.layer == layer) gate_up = down = other.bits;
  }
  MOE_ASSIGN_OR_RETURN(const WeightFormat wide, format_of(gate_up, options.group_size));
  MOE_ASSIGN_OR_RETURN(const WeightFormat narrow, format_of(down, options.group_size));
  return Formats{wide, wide, narrow};
}

Status check_layers(const QuantizeOptions& options, const ModelConfig& config) {
  std::vector<std::uint32_t> named = options.layers;
  for (const LayerBits& bits : options.layer_bits) named.push_back(bits.layer);
  for (std::uint32_t layer : named) {
    MOE_RETURN_IF_ERROR(check_layer_exists(layer, config.num_layers));
  }
  return Status::ok();
}

Status no_whole_groups(const QuantizeOptions& options, const ModelConfig& config) {
  return invalid_argument(
      "experts of " + std::to_string(config.expert_width) + " x " +
          std::to_string(config.hidden_size) + " are no whole number of groups of " +
          std::to_string(options.group_size),
      "group sizes that fit all experts: " + fitting_groups(config, kNoGroupRemedy));
}

Status plan_layers(const QuantizeOptions& options, QuantizePlan& plan) {
  const ModelConfig& config = plan.config;
  PackManifest& pack = plan.pack;
  set_dimensions(config, plan.weights.page_size(), pack);
  pack.source = plan.weights.source();
  pack.source.method = quant_method_name(options.method);
  const auto layout_of = [&](std::uint32_t l, std::uint32_t e) -> Result<ExpertLayout> {
    MOE_ASSIGN_OR_RETURN(const Formats formats, formats_of(options, l, e));
    const auto layout = make_expert_layout(config.hidden_size, config.expert_width, formats);
    if (!layout.has_value()) return no_whole_groups(options, config);
    return in_order(*layout, options.row_order);
  };
  MOE_ASSIGN_OR_RETURN(plan.pack_bytes, plan_pack_layers(pack, config, layout_of));
  return Status::ok();
}

Result<std::string> directory_of(const std::string& name) {
  const auto directory = new_pack_directory(name);
  if (directory.has_value()) return *directory;
  return invalid_argument("\"" + printable(name) + "\" cannot be the name of a pack",
                          "give --name letters, digits, _ and -, as in --name gptq_2bit");
}

// The bytes that one thread takes: the expert's weights, which it has twice while codes are chosen,
// and a Hessian with its factor.
std::uint64_t worker_bytes(const ModelConfig& config, bool calibrated) {
  const std::uint64_t hidden = config.hidden_size;
  const std::uint64_t width = config.expert_width;
  const std::uint64_t matrix = padded_rows(std::max(hidden, width)) * std::min(hidden, width) * 4;
  const std::uint64_t widest = std::max(hidden, width);
  const std::uint64_t hessians = calibrated ? 3 * widest * widest * 4 + 1024 * widest * 4 : 0;
  return 3 * matrix + 4 * matrix + hessians;
}

std::uint64_t sum_of(const std::string& text) { return checksum(std::as_bytes(std::span(text))); }

std::uint64_t recipe_of(const QuantizePlan& plan) {
  std::string text = "quantizer " + std::to_string(kQuantizerVersion) + "\n" +
                     plan.pack.source.method + " of weights " +
                     checksum_text(plan.weights.digest()) + "\n";
  if (plan.calibration != nullptr) {
    text += "calibration " + checksum_text(plan.calibration->digest()) + "\n";
  }
  return sum_of(text);
}

// A digest of everything that decides about the bytes. Packs of the same recipe hold the bytes that
// quantizing gives, so of the packs to take records from only the named ones count.
std::uint64_t plan_digest(const QuantizeOptions& options, const QuantizePlan& plan) {
  PackManifest pack = plan.pack;
  pack.source.name.clear();
  return sum_of(pack_manifest_text(pack) + "recipe " + checksum_text(plan.recipe) + "\n" +
                plan.reuse.named_text() + options.hot_experts);
}

Status find_reusable(const QuantizeOptions& options, QuantizePlan& plan) {
  if (!options.expert_bits.has_value()) return Status::ok();
  MOE_ASSIGN_OR_RETURN(plan.reuse,
                       ReusablePacks::open({.model = options.model,
                                            .not_this = plan.directory,
                                            .recipe = plan.recipe,
                                            .named = options.reuse,
                                            .fingerprint = plan.weights.source().fingerprint},
                                           plan.config));
  ReusablePacks::Record ignored;
  for (std::uint32_t l = 0; l < plan.pack.num_layers; ++l) {
    for (std::uint32_t e = 0; e < plan.pack.experts_of(l); ++e) {
      if (plan.reuse.find(l, e, plan.pack.layout_of(l, e), ignored)) ++plan.reused[l];
    }
  }
  return Status::ok();
}

// Checks that an allocation is of this model, as far as it says.
Status check_expert_bits(const QuantizeOptions& options, const QuantizePlan& plan) {
  if (!options.expert_bits.has_value()) return Status::ok();
  const ExpertBits& bits = *options.expert_bits;
  if (bits.num_layers != plan.config.num_layers || bits.num_experts != plan.config.num_experts) {
    return invalid_argument("the widths are of another model, with " +
                                std::to_string(bits.num_layers) + " layers of " +
                                std::to_string(bits.num_experts) + " experts; this one has " +
                                std::to_string(plan.config.num_layers) + " of " +
                                std::to_string(plan.config.num_experts),
                            "make them with this model");
  }
  for (std::uint32_t l = 0; l < bits.num_layers; ++l) {
    if (!has_experts(plan.config.layers[l]) || !bits.layers[l][0].empty()) continue;
    return invalid_argument(
        "the widths are of another model, whose layer " + std::to_string(l) + " has no experts",
        "make them with this model");
  }
  const std::uint64_t here = plan.weights.source().fingerprint;
  if (bits.source_fingerprint == 0 || here == 0 || bits.source_fingerprint == here) {
    return Status::ok();
  }
  return invalid_argument(
      "the widths were chosen for another model (" + printable(bits.model) + ") of the same shape",
      "run moepack sensitivity on this model");
}

}  // namespace

Result<QuantizePlan> make_quantize_plan(const QuantizeOptions& options) {
  QuantizePlan plan;
  MOE_ASSIGN_OR_RETURN(const std::string name, directory_of(options.name));
  plan.directory = options.model / name;
  MOE_ASSIGN_OR_RETURN(
      static_cast<QuantizeInputs&>(plan),
      open_quantize_inputs(options.model, options.from, options.method, options.calibration));
  MOE_RETURN_IF_ERROR(check_layers(options, plan.config));
  MOE_RETURN_IF_ERROR(check_expert_bits(options, plan));
  MOE_RETURN_IF_ERROR(plan_layers(options, plan));
  plan.worker_bytes = worker_bytes(plan.config, plan.calibration != nullptr);
  plan.total_bytes = plan.pack_bytes + 2 * pack_manifest_text(plan.pack).size();
  plan.recipe = recipe_of(plan);
  plan.reused.resize(plan.pack.num_layers);
  MOE_RETURN_IF_ERROR(find_reusable(options, plan));
  plan.digest = plan_digest(options, plan);
  return plan;
}

}  // namespace moepack
