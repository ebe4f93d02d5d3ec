#include "runtime/vulkan/vulkan_support.h"

#include <algorithm>
#include <string>
#include <variant>

#include "runtime/model/kernel_support.h"
#include "runtime/vulkan/attention_widths.h"
#include "runtime/vulkan/kernel_set.h"
#include "runtime/vulkan/latent_path.h"
#include "shaders/catalog.h"

namespace moepack {
namespace {

// What shaders/attention_args.h and route_args.h say of sizes.
Status check_sizes(const ModelConfig& config) {
  constexpr std::uint32_t kMostHeadDim = 512;
  constexpr std::uint32_t kMostExperts = 1024;
  constexpr std::uint32_t kMostChosen = 32;
  std::string what;
  if (config.kv_rank != 0) {
    what = missing_latent_part(config);
  } else {
    for (const HeadSizes& heads : attention_heads(config)) {
      if (heads.head_dim <= kMostHeadDim && heads.head_dim % 4 == 0) continue;
      what = "attention heads of " + std::to_string(heads.head_dim) + " values";
    }
  }
  if (config.num_experts > kMostExperts) {
    what = std::to_string(config.num_experts) + " experts a layer";
  } else if (config.experts_per_token > kMostChosen) {
    what = std::to_string(config.experts_per_token) + " experts a token";
  }
  if (what.empty()) return Status::ok();
  return unsupported(Where{}, "the vulkan backend does not compute " + what, "use --backend cpu");
}

// What of a layer no shader computes; "" where there is nothing.
std::string missing_part(const FullAttentionSpec& spec) {
  const bool is_whole = spec.norm == QueryKeyNorm::kWholeWidth;
  if (spec.has_value_norm && is_whole) return "norms of values beside norms of whole queries";
  if (spec.values_are_keys && spec.has_bias) return "biases of values that are keys";
  return spec.has_bias && spec.has_gate ? "biases of queries with gates" : "";
}
std::string missing_part(const GatedDeltaNetSpec&) { return ""; }
std::string missing_part(const LatentAttentionSpec&) { return ""; }  // check_sizes
std::string missing_part(const SoftmaxRouterSpec&) { return ""; }
std::string missing_part(const SigmoidRouterSpec&) { return ""; }
// Programs of experts compute the shared one beside the others.
std::string missing_part(const ExpertsSpec& spec) {
  if (!spec.has_shared_expert) return "";
  if (spec.has_biases) return "biases of experts beside a shared expert";
  return spec.activation == ExpertActivation::kClampedSwiGlu
             ? "this activation beside a shared expert"
             : "";
}
std::string missing_part(const DenseSpec&) { return ""; }

bool has_output_bias(const MixerSpec& mixer) {
  const auto* full = std::get_if<FullAttentionSpec>(&mixer);
  return full != nullptr && full->has_output_bias;
}

Status check_layers(const ModelConfig& config) {
  const auto part_of = [](const auto& spec) { return missing_part(spec); };
  for (const LayerSpec& layer : config.layers) {
    std::string what = std::visit(part_of, layer.mixer);
    if (what.empty()) what = std::visit(part_of, layer.router);
    if (what.empty()) what = std::visit(part_of, layer.feed_forward);
    if (what.empty() && layer.has_output_norms && has_output_bias(layer.mixer)) {
      what = "a bias of what attention gives before its norm";
    }
    if (what.empty() && config.rope_interleaved && config.kv_rank == 0)
      what = "interleaved rotary embedding";
    if (what.empty()) continue;
    return unsupported(Where{}, "the vulkan backend does not compute " + what, "use --backend cpu");
  }
  return Status::ok();
}

}  // namespace

Status check_vulkan_support(const ModelDir& model, KvEncoding kv_encoding) {
  MOE_RETURN_IF_ERROR(check_sizes(model.config));
  MOE_RETURN_IF_ERROR(check_layers(model.config));
  if (kv_encoding == KvEncoding::kFp8) {
    return invalid_argument(
        "the vulkan backend keeps keys and values in f32, f16 or bf16, not in " +
            std::string(kv_encoding_name(kv_encoding)),
        "give another --kv-cache-type, or --backend cpu");
  }
  const auto knows = [](const WeightFormat& format) {
    return has_shader(shader_name("matvec", format));
  };
  return check_format_support("vulkan", knows, model);
}

}  // namespace moepack
