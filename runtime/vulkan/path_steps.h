// Steps that both paths have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/weights/expert_layout.h"
#include "runtime/vulkan/path.h"
#include "runtime/vulkan/weight_kernels.h"
#include "shaders/catalog.h"
#include "shaders/route_args.h"

namespace moepack {

inline std::uint32_t groups_of(std::uint64_t count, std::uint64_t size) {
  return static_cast<std::uint32_t>((count + size - 1) / size);
}
inline std::uint32_t count32(std::uint64_t count) { return static_cast<std::uint32_t>(count); }

// A matrix, or a projection of records, as kernels see its rows.
inline WeightRows weight_rows(const DeviceMatrix& matrix) {
  return {.format = matrix.format,
          .cols = matrix.cols,
          .alignment = row_alignment(matrix.format, matrix.cols, DeviceArena::kAlignment),
          .rows = matrix.rows};
}
inline WeightRows weight_rows(const ProjectionLayout& projection) {
  return {
      .format = projection.format,
      .cols = projection.cols,
      .alignment = row_alignment(projection.format, projection.cols,
                                 DeviceArena::kAlignment | projection.offset_of(Component::kCodes)),
      .rows = projection.rows};
}
// The kernel of an operation for a format.
inline const VulkanKernel& weight_kernel(const PathParts& parts, std::string_view operation,
                                         const WeightRows& rows,
                                         std::vector<std::uint32_t> constants) {
  return parts.kernels.get(shader_name(operation, rows.format), std::move(constants));
}

// A kernel of a stage: the ordered form of its program, where the list takes it and there is one.
inline const VulkanKernel& stage_kernel(const PathParts& parts, const CommandList& list,
                                        const std::string& program,
                                        std::vector<std::uint32_t> constants) {
  const std::string ordered = program + std::string(kOrderedSuffix);
  const bool is_ordered = list.is_ordered() && has_shader(ordered);
  return parts.kernels.get(is_ordered ? ordered : program, std::move(constants));
}

// Whether gate and up are one product.
inline bool is_fused(const ExpertLayout& layout) {
  return layout.of(Projection::kGate).format == layout.of(Projection::kUp).format;
}
// Where experts of a layout put act, and up where it is a product of its own: routed ones and a
// shared one may differ in width.
inline std::uint64_t activated(const PathParts& parts, const ExpertLayout& layout) {
  const bool is_usual = layout.of(Projection::kGate).rows == parts.config.expert_width;
  return is_usual ? parts.scratch.activated : parts.scratch.shared_activated;
}
inline std::uint64_t raised(const PathParts& parts, const ExpertLayout& layout) {
  const bool is_usual = layout.of(Projection::kGate).rows == parts.config.expert_width;
  return is_usual ? parts.scratch.raised : parts.scratch.shared_raised;
}

// Experts a row uses, the shared one included.
std::uint32_t slots_of(const ModelConfig& config, const DeviceLayer& layer);
// Where its choices lie.
std::uint64_t choices_of(const PathParts& parts, const DeviceLayer& layer);
Activation activation_of(const DeviceLayer& layer);
// Specialization constants of routing: route's from 1 on.
std::vector<std::uint32_t> routing_constants(const PathParts& parts, const DeviceMoe& moe);
bool renormalises(const DeviceMoe& moe);
// How a layer's choices are made, of the logits in the scratch.
shader::RouteArgs route_args(const PathParts& parts, std::uint32_t layer);
// Floats of a query head in the projection: with or without its gate.
inline std::uint32_t query_step(const DeviceAttention& weights) {
  return weights.heads.head_dim * (weights.spec.has_gate ? 2 : 1);
}

void record_embed(const PathParts& parts, CommandList& list, const BatchShape& shape);
// Norm, rotation and storing of queries, keys and values, and hidden += the bias of what attention
// gives, which nothing reads meanwhile; without a barrier.
void record_qk_prepare(const PathParts& parts, CommandList& list, const BatchShape& shape,
                       std::uint32_t layer);
// Attention by tiles of queries, of any number of rows, with a barrier.
void record_attend_tiles(const PathParts& parts, CommandList& list, const BatchShape& shape,
                         std::uint32_t layer);
// hidden += the norm of DeviceScratch::normed, with a barrier.
void record_add_normed(const PathParts& parts, CommandList& list, const BatchShape& shape,
                       DeviceFloats factor);
// The activation of so many pairs of a layer; without a barrier.
void record_swiglu(const PathParts& parts, CommandList& list, std::uint64_t pairs,
                   std::uint32_t layer);
// hidden += the results of the experts, in the order of slots, of those in the table `records`
// alone (0: of all); without a barrier.
void record_combine(const PathParts& parts, CommandList& list, const BatchShape& shape,
                    std::uint32_t layer, std::uint64_t records = 0);
// The same of a layer that norms or scales what its network gives (DeviceMoe::is_plain_sum), whose
// results lie apart: hidden becomes the layer's. `more`: [rows, H], what was computed elsewhere; 0:
// nothing. What lies in DeviceScratch::normed is lost.
void record_join_network(const PathParts& parts, CommandList& list, const BatchShape& shape,
                         std::uint32_t layer, std::uint64_t records = 0, std::uint64_t more = 0);
// The choices of the router's logits; without a barrier.
void record_choices(const PathParts& parts, CommandList& list, const BatchShape& shape,
                    std::uint32_t layer);

}  // namespace moepack
