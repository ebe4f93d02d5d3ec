#include "runtime/vulkan/prompt_path.h"

#include <algorithm>
#include <vector>

#include "runtime/model/latent_scale.h"
#include "runtime/model/layer_state.h"
#include "runtime/vulkan/latent_path.h"
#include "runtime/vulkan/path_steps.h"
#include "shaders/delta_args.h"
#include "shaders/expert_groups.h"
#include "shaders/expert_matmul_args.h"
#include "shaders/gate_up_matmul_args.h"
#include "shaders/group_rows_args.h"
#include "shaders/half_rows_args.h"
#include "shaders/matmul_args.h"
#include "shaders/rms_norm_args.h"

namespace moepack {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kHalfThreads = 128;

class PromptPath final : public Path {
 public:
  explicit PromptPath(const PathParts& parts)
      : p_(parts),
        c_(parts.config),
        s_(parts.scratch),
        has_matrices_(parts.device.has_cooperative_matrix && parts.device.subgroup_size == 32) {}

  void begin(CommandList& /*list*/, const BatchShape& /*shape*/) override {}
  const PathParts& parts() const override { return p_; }

  void embed(CommandList& list, const BatchShape& shape) override { record_embed(p_, list, shape); }

  void mix(CommandList& list, const BatchShape& shape, std::uint32_t layer) override {
    const DeviceLayer& weights = p_.weights.layers[layer];
    norm(list, weights.input_norm, shape);
    halve(list, s_.normed, shape.rows, c_.hidden_size);
    if (const auto* attention = std::get_if<DeviceAttention>(&weights.mixer)) {
      attend(list, *attention, shape, layer);
      add_product(list, attention->o, weights, shape);
    } else if (const auto* latent = std::get_if<DeviceLatent>(&weights.mixer)) {
      project_latent(list, *latent, shape);
      record_latent(p_, list, shape, layer, LatentForm::kTiles);
      add_product(list, latent->o, weights, shape);
    } else {
      const auto& delta = std::get<DeviceDelta>(weights.mixer);
      mix_delta(list, delta, shape, layer);
      add_product(list, delta.out, weights, shape);
    }
  }

  void route(CommandList& list, const BatchShape& shape, std::uint32_t layer) override {
    const DeviceLayer& weights = p_.weights.layers[layer];
    if (weights.moe.shared_input_norm != 0) {
      norm(list, {s_.hidden, s_.branch_normed, c_.hidden_size, c_.rms_norm_eps},
           weights.moe.shared_input_norm, shape);
    }
    if (weights.moe.router_norm != 0) {
      norm(list, weights.moe.router_norm, shape);
      matmul(list, weights.moe.router, exactly(s_.normed), s_.router_logits, shape.rows, false);
      list.barrier();
    }
    norm(list, weights.post_norm, shape);
    if (weights.moe.has_experts) choose(list, shape, layer);
    group(list, shape, layer);
    list.full_barrier();  // grids of the dispatches behind
  }

  // Kinds whose gate and up differ in format come first: their SwiGLU goes over all pairs, and what
  // it makes of other kinds' is overwritten.
  void run_experts(CommandList& list, const BatchShape& shape, std::uint32_t layer) override {
    const LayerExperts& experts = p_.experts.layer(layer);
    const std::uint32_t slots = slots_of(c_, p_.weights.layers[layer]);
    bool has_split = false;
    std::uint64_t halved = 0;
    for (std::uint32_t kind = 0; kind < experts.kinds.size(); ++kind) {
      if (is_fused(experts.kinds[kind])) continue;
      const std::uint64_t x = read_by(list, experts, kind, shape, halved);
      project(list, layer, kind, Projection::kGate, x, activated(p_, experts.kinds[kind]), slots);
      project(list, layer, kind, Projection::kUp, x, raised(p_, experts.kinds[kind]), slots);
      has_split = true;
    }
    if (has_split) {
      list.barrier();
      record_swiglu(p_, list, std::uint64_t{shape.rows} * slots, layer);
      list.barrier();
    }
    for (std::uint32_t kind = 0; kind < experts.kinds.size(); ++kind) {
      if (!is_fused(experts.kinds[kind])) continue;
      gate_up(list, layer, kind, read_by(list, experts, kind, shape, halved), slots);
    }
    list.barrier();
    project_down(list, layer, s_.activated, shape.rows * slots);
    project_down(list, layer, s_.shared_activated, shape.rows * slots);
  }

  void add_experts(CommandList& list, const BatchShape& shape, std::uint32_t layer) override {
    if (p_.weights.layers[layer].moe.is_plain_sum) {
      record_combine(p_, list, shape, layer);
    } else {
      record_join_network(p_, list, shape, layer);
    }
    list.barrier();
  }

 private:
  // What experts of a kind read, in 16 bits where that is read. `halved`: what was made so last, of
  // this layer.
  std::uint64_t read_by(CommandList& list, const LayerExperts& experts, std::uint32_t kind,
                        const BatchShape& shape, std::uint64_t& halved) {
    const std::uint64_t x = experts.has_own_inputs(kind) ? s_.branch_normed : s_.normed;
    if (!has_matrices_ || halved == x) return x;
    if (halved != 0) list.barrier();
    halve(list, x, shape.rows, c_.hidden_size);
    halved = x;
    return x;
  }

  // In float32, so that choices depend on no rounding.
  void choose(CommandList& list, const BatchShape& shape, std::uint32_t layer) {
    const DeviceMoe& moe = p_.weights.layers[layer].moe;
    if (moe.router_norm == 0) {
      matmul(list, moe.router, exactly(s_.normed), s_.router_logits, shape.rows, false);
    }
    if (moe.has_shared && moe.has_shared_gate) {
      const std::uint64_t x = moe.shared_input_norm != 0 ? s_.branch_normed : s_.normed;
      matmul(list, moe.shared_expert_gate, exactly(x), s_.shared_logits, shape.rows, false);
    }
    list.barrier();
    record_choices(p_, list, shape, layer);
    list.barrier();
  }

  // What a product reads: rows of floats, or what halve() made of them last.
  struct Inputs {
    std::uint64_t rows = 0;
    std::uint64_t scales = 0;  // 0: floats
    std::uint32_t stride = 0;  // elements; 0: the matrix's columns

    bool is_halves() const { return scales != 0; }
  };
  static Inputs exactly(std::uint64_t floats) { return {.rows = floats}; }
  // With weights of 32-bit floats a product is of those.
  Inputs inputs(std::uint64_t floats, const WeightFormat& format, std::uint64_t cols) const {
    if (!has_matrices_ || format.id == QFormatId::kF32) return exactly(floats);
    return {.rows = s_.halves, .scales = s_.half_scales, .stride = half_stride(cols)};
  }
  static std::uint32_t half_stride(std::uint64_t cols) { return groups_of(cols, 8) * 8; }

  // The 16-bit form of rows that the next products read, on devices with cooperative matrices. What
  // read the last one lies before a barrier.
  void halve(CommandList& list, std::uint64_t x, std::uint32_t rows, std::uint64_t cols) {
    if (!has_matrices_) return;
    list.dispatch(p_.kernels.get("half_rows", {kHalfThreads}),
                  shader::HalfRowsArgs{.x = x,
                                       .y = s_.halves,
                                       .scales = s_.half_scales,
                                       .cols = count32(cols),
                                       .x_stride = count32(cols),
                                       .y_stride = half_stride(cols)},
                  {rows, 1, 1});
    list.barrier();
  }

  const VulkanKernel& tile_kernel(std::string_view operation, const WeightRows& rows,
                                  const Inputs& inputs, const ProductTile& tile,
                                  std::initializer_list<std::uint32_t> more = {}) {
    std::vector<std::uint32_t> constants = product_constants(rows, tile);
    constants.insert(constants.end(), more);
    return p_.kernels.get(shader_name(operation, rows.format) + (inputs.is_halves() ? "_cm" : ""),
                          std::move(constants));
  }

  void norm(CommandList& list, DeviceFloats factor, const BatchShape& shape) {
    norm(list, {s_.hidden, s_.normed, c_.hidden_size, c_.rms_norm_eps}, factor, shape);
  }
  struct NormRows {
    std::uint64_t x;
    std::uint64_t y;
    std::uint32_t width;
    float eps;
  };
  void norm(CommandList& list, const NormRows& rows, DeviceFloats factor, const BatchShape& shape) {
    list.dispatch(p_.kernels.get("rms_norm", {kThreads}),
                  shader::RmsNormArgs{.x = rows.x,
                                      .factor = factor,
                                      .y = rows.y,
                                      .width = rows.width,
                                      .x_stride = rows.width,
                                      .y_stride = rows.width,
                                      .eps = rows.eps},
                  {shape.rows, 1, 1});
    list.barrier();
  }

  void project_latent(CommandList& list, const DeviceLatent& w, const BatchShape& shape) {
    const bool has_rank = w.spec.has_query_rank;
    matmul(list, w.kv_down, s_.normed, s_.keys, shape.rows, false);
    matmul(list, has_rank ? w.q_down : w.q, s_.normed, has_rank ? s_.query_down : s_.projected,
           shape.rows, false);
    list.barrier();
    if (!has_rank) return;
    norm(list, {s_.query_down, s_.query_down, c_.query_rank, kLatentNormEps}, w.q_down_norm, shape);
    halve(list, s_.query_down, shape.rows, c_.query_rank);
    matmul(list, w.q, s_.query_down, s_.projected, shape.rows, false);
    list.barrier();
  }

  // y = W x, or y += W x, of all rows; no barrier.
  void matmul(CommandList& list, const DeviceMatrix& w, const Inputs& x, std::uint64_t y,
              std::uint32_t rows, bool add) {
    const ProductTile tile = dense_tile(w.rows, rows, x.is_halves());
    const VulkanKernel& kernel = tile_kernel("matmul", weight_rows(w), x, tile);
    for (const DeviceRows& piece : w.pieces) {
      list.dispatch(kernel,
                    shader::MatmulArgs{.codes = piece.address[Component::kCodes],
                                       .scales = piece.address[Component::kScales],
                                       .biases = piece.address[Component::kBiases],
                                       .tables = p_.weights.tables,
                                       .x = x.rows,
                                       .x_scales = x.scales,
                                       .y = y + piece.first * sizeof(float),
                                       .outputs = count32(piece.count),
                                       .rows = rows,
                                       .x_stride = x.stride != 0 ? x.stride : count32(w.cols),
                                       .y_stride = count32(w.rows),
                                       .add = add ? 1U : 0U},
                    {groups_of(piece.count, tile.outputs), groups_of(rows, tile.tokens), 1});
    }
  }

  // The same of what halve() was given last.
  void matmul(CommandList& list, const DeviceMatrix& w, std::uint64_t x, std::uint64_t y,
              std::uint32_t rows, bool add) {
    matmul(list, w, inputs(x, w.format, w.cols), y, rows, add);
  }

  // hidden += W mixed, or the norm of that.
  void add_product(CommandList& list, const DeviceMatrix& w, const DeviceLayer& weights,
                   const BatchShape& shape) {
    halve(list, s_.mixed, shape.rows, w.cols);
    if (weights.mixer_norm != 0) {
      matmul(list, w, s_.mixed, s_.normed, shape.rows, false);
      list.barrier();
      return record_add_normed(p_, list, shape, weights.mixer_norm);
    }
    matmul(list, w, s_.mixed, s_.hidden, shape.rows, true);
    list.barrier();
  }

  void attend(CommandList& list, const DeviceAttention& weights, const BatchShape& shape,
              std::uint32_t layer) {
    matmul(list, weights.q, s_.normed, s_.projected, shape.rows, false);
    matmul(list, weights.k, s_.normed, s_.keys, shape.rows, false);
    if (!weights.spec.values_are_keys) {
      matmul(list, weights.v, s_.normed, s_.values, shape.rows, false);
    }
    list.barrier();
    record_qk_prepare(p_, list, shape, layer);
    list.barrier();
    record_attend_tiles(p_, list, shape, layer);
  }

  void mix_delta(CommandList& list, const DeviceDelta& weights, const BatchShape& shape,
                 std::uint32_t layer) {
    matmul(list, weights.in_qkv, s_.normed, s_.projected, shape.rows, false);
    matmul(list, weights.in_z, s_.normed, s_.delta_z, shape.rows, false);
    matmul(list, weights.in_b, s_.normed, s_.delta_b, shape.rows, false);
    matmul(list, weights.in_a, s_.normed, s_.delta_a, shape.rows, false);
    list.barrier();
    prepare_delta(list, weights, shape, layer);
    list.barrier();
    recur(list, weights, shape, layer);
    list.barrier();
    const std::uint32_t values = c_.linear_value_heads * c_.linear_value_dim;
    list.dispatch(
        p_.kernels.get("delta_gate", delta_constants(kThreads)),
        shader::DeltaGateArgs{.rows = p_.tables.rows(),
                              .z = s_.delta_z,
                              .norm = weights.norm,
                              .mixed = s_.mixed,
                              .z_stride = values,
                              .value_heads = c_.linear_value_heads,
                              .count = shape.rows,
                              .eps = c_.rms_norm_eps},
        {groups_of(std::uint64_t{shape.rows} * c_.linear_value_heads * 8, kThreads), 1, 1});
    list.barrier();
  }

  std::vector<std::uint32_t> delta_constants(std::uint32_t threads) const {
    return {threads, c_.linear_key_dim, c_.linear_value_dim, c_.linear_conv_taps};
  }

  void prepare_delta(CommandList& list, const DeviceDelta& weights, const BatchShape& shape,
                     std::uint32_t layer) {
    list.dispatch(p_.kernels.get("delta_prepare", delta_constants(kThreads)),
                  shader::DeltaPrepareArgs{.rows = p_.tables.rows(),
                                           .slices = p_.tables.slices(),
                                           .states = p_.tables.states(layer),
                                           .qkv = s_.projected,
                                           .a = s_.delta_a,
                                           .b = s_.delta_b,
                                           .conv = weights.conv,
                                           .decay_rate = weights.decay_rate,
                                           .dt_bias = weights.dt_bias,
                                           .keys = s_.delta_keys,
                                           .values = s_.delta_values,
                                           .factors = s_.delta_factors,
                                           .qkv_stride = count32(conv_channels(c_)),
                                           .ab_stride = c_.linear_value_heads,
                                           .key_heads = c_.linear_key_heads,
                                           .value_heads = c_.linear_value_heads,
                                           .is_tiled = weights.tiled_v_heads ? 1U : 0U},
                  {shape.rows, 1, 1});
  }

  void recur(CommandList& list, const DeviceDelta& weights, const BatchShape& shape,
             std::uint32_t layer) {
    constexpr std::uint32_t kRecurThreads = 64;
    list.dispatch(
        p_.kernels.get("delta_recur", delta_constants(kRecurThreads)),
        shader::DeltaRecurArgs{.slices = p_.tables.slices(),
                               .states = p_.tables.states(layer),
                               .qkv = s_.projected,
                               .keys = s_.delta_keys,
                               .values = s_.delta_values,
                               .factors = s_.delta_factors,
                               .mixed = s_.mixed,
                               .qkv_stride = count32(conv_channels(c_)),
                               .key_heads = c_.linear_key_heads,
                               .value_heads = c_.linear_value_heads,
                               .is_tiled = weights.tiled_v_heads ? 1U : 0U},
        {groups_of(c_.linear_value_dim, kRecurThreads / 8), c_.linear_value_heads, shape.slices});
  }

  void group(CommandList& list, const BatchShape& shape, std::uint32_t layer) {
    const std::uint32_t slots = slots_of(c_, p_.weights.layers[layer]);
    list.dispatch(p_.kernels.get("group_rows", {kThreads, c_.num_experts + 1}),
                  shader::GroupRowsArgs{.choices = choices_of(p_, p_.weights.layers[layer]),
                                        .pairs = s_.pairs,
                                        .offsets = s_.offsets,
                                        .tiles = s_.tiles,
                                        .sizes = s_.grids,
                                        .count = shape.rows * slots,
                                        .tile = expert_tile(has_matrices_).tokens,
                                        .dispatches = count32(p_.grid_widths.size())},
                  {c_.num_experts + 1, 1, 1});
  }

  // results = W act of the kinds that put their activations there.
  void project_down(CommandList& list, std::uint32_t layer, std::uint64_t act,
                    std::uint32_t pairs) {
    const LayerExperts& experts = p_.experts.layer(layer);
    bool is_first = true;
    for (std::uint32_t kind = 0; kind < experts.kinds.size(); ++kind) {
      if (activated(p_, experts.kinds[kind]) != act) continue;
      if (is_first) halve(list, act, pairs, experts.kinds[kind].of(Projection::kDown).cols);
      is_first = false;
      project(list, layer, kind, Projection::kDown, act, s_.results, 1);
    }
    if (!is_first) list.barrier();
  }

  // One projection of the experts of a kind: y[pair] = W x[pair / pairs_per_input].
  void project(CommandList& list, std::uint32_t layer, std::uint32_t kind, Projection projection,
               std::uint64_t x, std::uint64_t y, std::uint32_t pairs_per_input) {
    const LayerExperts& experts = p_.experts.layer(layer);
    const ProjectionLayout& w = experts.kinds[kind].of(projection);
    const Inputs from = inputs(x, w.format, w.cols);
    const ProductTile tile = expert_tile(from.is_halves());
    const ProjectionBias bias = bias_of(layer, projection);
    list.dispatch_indirect(
        tile_kernel("expert_matmul", weight_rows(w), from, tile, {bias.at != 0 ? 1U : 0U}),
        shader::ExpertMatmulArgs{.records = experts.table,
                                 .kinds = experts.kind_table,
                                 .pairs = s_.pairs,
                                 .tiles = s_.tiles,
                                 .tables = p_.weights.tables,
                                 .x = from.rows,
                                 .x_scales = from.scales,
                                 .y = y,
                                 .bias = bias.at,
                                 .codes = count32(w.offset_of(Component::kCodes)),
                                 .scales = count32(w.offset_of(Component::kScales)),
                                 .biases = count32(w.offset_of(Component::kBiases)),
                                 .outputs = count32(w.rows),
                                 .x_stride = from.stride != 0 ? from.stride : count32(w.cols),
                                 .pairs_per_input = pairs_per_input,
                                 .bias_stride = bias.stride,
                                 .kind = kind},
        p_.scratch_buffer, grid_at(grid_of(w.rows, tile.outputs)));
  }

  // What is added to a projection of routed experts; at 0: nothing.
  struct ProjectionBias {
    std::uint64_t at = 0;
    std::uint32_t stride = 0;  // floats, from expert to expert
  };
  ProjectionBias bias_of(std::uint32_t layer, Projection projection) const {
    const DeviceMoe& moe = p_.weights.layers[layer].moe;
    if (projection == Projection::kDown) return {moe.down_bias, c_.hidden_size};
    if (moe.gate_up_bias == 0) return {};
    const bool is_up = projection == Projection::kUp;
    return {moe.gate_up_bias + (is_up ? c_.expert_width * sizeof(float) : 0), 2 * c_.expert_width};
  }

  void gate_up(CommandList& list, std::uint32_t layer, std::uint32_t kind, std::uint64_t x,
               std::uint32_t slots) {
    const LayerExperts& experts = p_.experts.layer(layer);
    const DeviceLayer& weights = p_.weights.layers[layer];
    const auto [activation, limit] = activation_constants(activation_of(weights));
    const ExpertLayout& layout = experts.kinds[kind];
    const ProjectionLayout& gate = layout.of(Projection::kGate);
    const ProjectionLayout& up = layout.of(Projection::kUp);
    const Inputs from = inputs(x, gate.format, gate.cols);
    WeightRows rows = weight_rows(gate);
    rows.alignment = std::min(rows.alignment, weight_rows(up).alignment);
    const ProductTile tile = expert_tile(from.is_halves());
    list.dispatch_indirect(
        tile_kernel("gate_up_matmul", rows, from, tile,
                    {activation, limit, weights.moe.gate_up_bias != 0 ? 1U : 0U}),
        shader::GateUpMatmulArgs{.records = experts.table,
                                 .kinds = experts.kind_table,
                                 .pairs = s_.pairs,
                                 .tiles = s_.tiles,
                                 .tables = p_.weights.tables,
                                 .x = from.rows,
                                 .x_scales = from.scales,
                                 .act = activated(p_, layout),
                                 .bias = weights.moe.gate_up_bias,
                                 .gate_codes = count32(gate.offset_of(Component::kCodes)),
                                 .gate_scales = count32(gate.offset_of(Component::kScales)),
                                 .gate_biases = count32(gate.offset_of(Component::kBiases)),
                                 .up_codes = count32(up.offset_of(Component::kCodes)),
                                 .up_scales = count32(up.offset_of(Component::kScales)),
                                 .up_biases = count32(up.offset_of(Component::kBiases)),
                                 .width = count32(gate.rows),
                                 .x_stride = from.stride != 0 ? from.stride : c_.hidden_size,
                                 .slots = slots,
                                 .kind = kind},
        p_.scratch_buffer, grid_at(grid_of(gate.rows, tile.outputs / 2)));
  }

  // Grids of expert products by their number of work groups over outputs; group_rows fills in the
  // tiles.
  std::uint64_t grid_of(std::uint64_t outputs, std::uint64_t tile) const {
    const std::uint32_t groups = groups_of(outputs, tile);
    const auto& widths = p_.grid_widths;
    const auto found = std::find(widths.begin(), widths.end(), groups);
    return static_cast<std::uint64_t>(found - widths.begin()) * sizeof(shader::DispatchSize);
  }
  std::uint64_t grid_at(std::uint64_t grid) const {
    return s_.grids - p_.scratch_buffer.address() + grid;
  }

  PathParts p_;
  const ModelConfig& c_;
  const DeviceScratch& s_;
  const bool has_matrices_;  // cooperative ones of 16-bit floats
};

}  // namespace

std::vector<std::uint32_t> expert_grid_widths(const ModelConfig& config) {
  std::vector<std::uint32_t> widths;
  for (const std::uint64_t outputs :
       {config.hidden_size, config.expert_width, config.shared_expert_width, config.dense_width}) {
    for (const bool is_cooperative : {false, true}) {
      const std::uint32_t tile = expert_tile(is_cooperative).outputs;
      for (const std::uint32_t groups : {groups_of(outputs, tile), groups_of(outputs, tile / 2)}) {
        if (groups != 0 && std::find(widths.begin(), widths.end(), groups) == widths.end()) {
          widths.push_back(groups);
        }
      }
    }
  }
  return widths;
}

std::unique_ptr<Path> make_prompt_path(const PathParts& parts) {
  return std::make_unique<PromptPath>(parts);
}

}  // namespace moepack
