#include "runtime/vulkan/path_steps.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "shaders/add_bias_args.h"
#include "shaders/attention_args.h"
#include "shaders/combine_args.h"
#include "shaders/embed_args.h"
#include "shaders/join_network_args.h"
#include "shaders/rms_norm_args.h"
#include "shaders/route_args.h"
#include "shaders/swiglu_args.h"

namespace moepack {
namespace {

constexpr std::uint32_t kThreads = 256;

}  // namespace

std::uint32_t slots_of(const ModelConfig& config, const DeviceLayer& layer) {
  return (layer.moe.has_experts ? config.experts_per_token : 0) + (layer.moe.has_shared ? 1 : 0);
}

std::uint64_t choices_of(const PathParts& parts, const DeviceLayer& layer) {
  return layer.moe.has_experts ? parts.scratch.choices : parts.scratch.dense_choices;
}

Activation activation_of(const DeviceLayer& layer) {
  return {.kind = layer.moe.activation, .limit = layer.moe.activation_limit};
}

std::vector<std::uint32_t> routing_constants(const PathParts& parts, const DeviceMoe& moe) {
  const ModelConfig& config = parts.config;
  const auto* sigmoids = std::get_if<SigmoidRouterSpec>(&moe.routing);
  const SigmoidRouterSpec spec = sigmoids != nullptr ? *sigmoids : SigmoidRouterSpec{};
  return {config.num_experts,
          config.experts_per_token,
          sigmoids != nullptr ? 1U : 0U,
          moe.has_router_bias ? 1U : 0U,
          spec.groups,
          spec.kept_groups,
          std::bit_cast<std::uint32_t>(spec.scale),
          moe.has_shared_gate ? 1U : 0U,
          moe.has_expert_scales ? 1U : 0U,
          parts.device.least_subgroup};
}

bool renormalises(const DeviceMoe& moe) {
  return std::visit([](const auto& spec) { return spec.renormalise; }, moe.routing);
}

void record_embed(const PathParts& p, CommandList& list, const BatchShape& shape) {
  const DeviceMatrix& w = p.weights.embedding;
  const WeightRows rows = weight_rows(w);
  const VulkanKernel& kernel =
      weight_kernel(p, "embed", rows, embed_constants(rows, 64, p.config.embedding_scale));
  for (const DeviceRows& piece : w.pieces) {
    list.dispatch(kernel,
                  shader::EmbedArgs{.codes = piece.address[Component::kCodes],
                                    .scales = piece.address[Component::kScales],
                                    .biases = piece.address[Component::kBiases],
                                    .rows = p.tables.rows(),
                                    .hidden = p.scratch.hidden,
                                    .tables = p.weights.tables,
                                    .row_error = p.scratch.row_error,
                                    .first = count32(piece.first),
                                    .count = count32(piece.count),
                                    .stride = p.config.hidden_size},
                  {groups_of(w.cols, 2048), shape.rows, 1});
  }
  list.barrier();
}

void record_swiglu(const PathParts& p, CommandList& list, std::uint64_t pairs,
                   std::uint32_t layer) {
  const auto [activation, limit] = activation_constants(activation_of(p.weights.layers[layer]));
  const VulkanKernel& kernel = p.kernels.get("swiglu", {kThreads, activation, limit});
  const auto multiply = [&](std::uint64_t gate, std::uint64_t up, std::uint64_t width) {
    list.dispatch(
        kernel,
        shader::SwigluArgs{.gate = gate, .up = up, .act = gate, .count = count32(pairs * width)},
        {std::min<std::uint32_t>(groups_of(pairs * width, kThreads), 4096), 1, 1});
  };
  std::uint64_t done = 0;  // widths: a layer has one or two
  for (const ExpertLayout& kind : p.experts.layer(layer).kinds) {
    const std::uint64_t width = kind.of(Projection::kGate).rows;
    if (width != done) multiply(activated(p, kind), raised(p, kind), width);
    done = width;
  }
}

void record_combine(const PathParts& p, CommandList& list, const BatchShape& shape,
                    std::uint32_t layer, std::uint64_t records) {
  list.dispatch(p.kernels.get("combine", {kThreads}),
                shader::CombineArgs{.records = records,
                                    .choices = choices_of(p, p.weights.layers[layer]),
                                    .results = p.scratch.results,
                                    .y = p.scratch.hidden,
                                    .experts = p.config.num_experts + 1,
                                    .slots = slots_of(p.config, p.weights.layers[layer]),
                                    .cols = p.config.hidden_size,
                                    .y_stride = p.config.hidden_size},
                {groups_of(p.config.hidden_size, kThreads), shape.rows, 1});
}

void record_qk_prepare(const PathParts& p, CommandList& list, const BatchShape& shape,
                       std::uint32_t layer) {
  const ModelConfig& c = p.config;
  const auto& weights = std::get<DeviceAttention>(p.weights.layers[layer].mixer);
  const HeadSizes& heads = weights.heads;
  const std::uint32_t step = query_step(weights);
  const std::uint32_t kv_width = heads.kv_heads * heads.head_dim;
  const bool is_whole = weights.spec.norm == QueryKeyNorm::kWholeWidth;
  const VulkanKernel& kernel =
      stage_kernel(p, list, "qk_prepare",
                   {groups_of(heads.head_dim, 128) * 64, heads.head_dim,
                    static_cast<std::uint32_t>(p.kv_encoding),
                    weights.spec.norm != QueryKeyNorm::kNone ? 1U : 0U, weights.bias != 0 ? 1U : 0U,
                    std::bit_cast<std::uint32_t>(p.weights.rope_amplitude),
                    std::bit_cast<std::uint32_t>(weights.spec.score_scale.value_or(0)),
                    weights.spec.has_value_norm ? 1U : 0U});
  list.dispatch(kernel,
                shader::QkPrepareArgs{
                    .rows = p.tables.rows(),
                    .q = p.scratch.projected,
                    .k = p.scratch.keys,
                    .v = weights.spec.values_are_keys ? p.scratch.keys : p.scratch.values,
                    .q_norm = weights.q_norm,
                    .k_norm = weights.k_norm,
                    .inverse_frequency = weights.inverse_frequency,
                    .bias = weights.bias,
                    .caches = p.tables.states(layer),
                    .q_stride = heads.heads * step,
                    .q_step = step,
                    .k_stride = kv_width,
                    .v_stride = kv_width,
                    .num_heads = heads.heads,
                    .kv_heads = heads.kv_heads,
                    .rotary_dim = heads.rotary_dim,
                    .is_whole_width = is_whole ? 1U : 0U,
                    .eps = c.rms_norm_eps,
                    .clip = weights.spec.clip.value_or(std::numeric_limits<float>::infinity())},
                {is_whole ? 3 : heads.heads + 2 * heads.kv_heads, shape.rows, 1});
  if (weights.output_bias == 0) return;
  list.dispatch(p.kernels.get("add_bias", {kThreads}),
                shader::AddBiasArgs{
                    .bias = weights.output_bias, .y = p.scratch.hidden, .cols = c.hidden_size},
                {groups_of(c.hidden_size, kThreads), shape.rows, 1});
}

void record_attend_tiles(const PathParts& p, CommandList& list, const BatchShape& shape,
                         std::uint32_t layer) {
  const auto& weights = std::get<DeviceAttention>(p.weights.layers[layer].mixer);
  const HeadSizes& heads = weights.heads;
  const std::uint32_t step = query_step(weights);
  const std::uint32_t group = heads.heads / heads.kv_heads;
  list.dispatch(
      p.kernels.get("attend_prompt",
                    {kThreads, heads.head_dim, static_cast<std::uint32_t>(p.kv_encoding),
                     weights.sinks != 0 ? 1U : 0U, weights.spec.window.value_or(0)}),
      shader::AttendPromptArgs{.slices = p.tables.slices(),
                               .q = p.scratch.projected,
                               .caches = p.tables.states(layer),
                               .attended = p.scratch.mixed,
                               .sinks = weights.sinks,
                               .q_stride = heads.heads * step,
                               .q_step = step,
                               .num_heads = heads.heads,
                               .kv_heads = heads.kv_heads,
                               .has_gate = weights.spec.has_gate ? 1U : 0U},
      {groups_of(std::uint64_t{shape.most_rows} * group, 64), heads.kv_heads, shape.slices});
  list.barrier();
}

void record_add_normed(const PathParts& p, CommandList& list, const BatchShape& shape,
                       DeviceFloats factor) {
  const std::uint32_t width = p.config.hidden_size;
  list.dispatch(p.kernels.get("rms_norm", {kThreads, 1}),
                shader::RmsNormArgs{.x = p.scratch.normed,
                                    .factor = factor,
                                    .y = p.scratch.hidden,
                                    .width = width,
                                    .x_stride = width,
                                    .y_stride = width,
                                    .eps = p.config.rms_norm_eps},
                {shape.rows, 1, 1});
  list.barrier();
}

void record_join_network(const PathParts& p, CommandList& list, const BatchShape& shape,
                         std::uint32_t layer, std::uint64_t records, std::uint64_t more) {
  const ModelConfig& c = p.config;
  const DeviceLayer& weights = p.weights.layers[layer];
  const DeviceMoe& moe = weights.moe;
  list.dispatch(p.kernels.get("join_network", {kThreads}),
                shader::JoinNetworkArgs{.records = records,
                                        .choices = choices_of(p, weights),
                                        .results = p.scratch.results,
                                        .more = more,
                                        .routed_norm = moe.routed_output_norm,
                                        .shared_norm = moe.shared_output_norm,
                                        .output_norm = moe.output_norm,
                                        .scale = moe.output_scale,
                                        .work = p.scratch.normed,
                                        .y = p.scratch.hidden,
                                        .experts = c.num_experts + 1,
                                        .routed = moe.has_experts ? c.experts_per_token : 0,
                                        .slots = slots_of(c, weights),
                                        .cols = c.hidden_size,
                                        .eps = c.rms_norm_eps},
                {shape.rows, 1, 1});
}

shader::RouteArgs route_args(const PathParts& p, std::uint32_t layer) {
  const DeviceMoe& moe = p.weights.layers[layer].moe;
  return {.rows = p.tables.rows(),
          .logits = p.scratch.router_logits,
          .shared_logits = p.scratch.shared_logits,
          .choices = p.scratch.choices,
          .row_error = p.scratch.row_error,
          .bias = moe.router_numbers,
          .logits_stride = p.config.num_experts,
          .shared_stride = 1,
          .has_shared = moe.has_shared ? 1U : 0U,
          .renormalise = renormalises(moe) ? 1U : 0U,
          .layer = layer};
}

void record_choices(const PathParts& p, CommandList& list, const BatchShape& shape,
                    std::uint32_t layer) {
  std::vector<std::uint32_t> constants = routing_constants(p, p.weights.layers[layer].moe);
  constants.insert(constants.begin(), kThreads);
  const VulkanKernel& kernel = p.kernels.get("route", std::move(constants));
  list.dispatch(kernel, route_args(p, layer), {shape.rows, 1, 1});
}

}  // namespace moepack
