#include "runtime/vulkan/few_rows_path.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "runtime/model/latent_scale.h"
#include "runtime/model/layer_state.h"
#include "runtime/vulkan/handed_scratch.h"
#include "runtime/vulkan/latent_path.h"
#include "runtime/vulkan/path_steps.h"
#include "shaders/argmax_args.h"
#include "shaders/attention_args.h"
#include "shaders/cap_logits_args.h"
#include "shaders/combine_args.h"
#include "shaders/copy_words_args.h"
#include "shaders/delta_args.h"
#include "shaders/down_args.h"
#include "shaders/fill_words_args.h"
#include "shaders/gate_up_args.h"
#include "shaders/matvec_args.h"
#include "shaders/matvec_fixed_args.h"
#include "shaders/router_args.h"
#include "shaders/stage_args.h"
#include "shaders/swiglu_args.h"

namespace moepack {
namespace {

constexpr std::uint32_t kDownRows = 8;  // of a work group
constexpr std::uint32_t kFixedDownRows = 16;
constexpr std::uint32_t kFixedDownThreads = 1024;
// Threads of a work group, which norms the inputs for all of its rows.
constexpr std::uint32_t kProductThreads = 512;
// Lanes of a row in products with inputs in fixed point: of affine projections that share a
// dispatch, of the experts, of all others. Blocks of ggml's are no whole words: more lanes side by
// side load them faster.
constexpr std::uint32_t kManyRowLanes = 8;
constexpr std::uint32_t kExpertLanes = 16;
constexpr std::uint32_t kFewRowLanes = 32;
constexpr std::uint32_t kPlainRouterThreads = 256;
constexpr std::uint32_t kPlainRouterSteps = 4;
constexpr std::uint32_t kRouterThreads = 1024;  // the last group also makes the choices

// down looks behind the stages of other kinds, experts' and gate_up's, at the router's.
static_assert(1 + HandedLayer::kMostKinds <= StageOrder::kStagesSeen);

// Ordered programs find their stage behind their arguments.
template <typename... Args>
constexpr bool kLeaveRoom = ((sizeof(Args) <= MOE_STAGE_AT) && ...);
static_assert(
    kLeaveRoom<shader::MatvecArgs, shader::MatvecFixedArgs, shader::RouterArgs, shader::GateUpArgs,
               shader::DownArgs, shader::DeltaStepArgs, shader::QkPrepareArgs, shader::AttendArgs,
               shader::ArgmaxArgs, shader::CopyWordsArgs>);

// A product with the residual stream or with what the mixer gave.
struct Inputs {
  std::uint64_t x = 0;
  DeviceFloats factor = 0;    // of a norm before; 0: none
  std::uint64_t added = 0;    // to the product, laid out as y, y itself or apart; 0: nothing
  std::uint64_t indices = 0;  // rows of x; 0: those of the batch
  float eps = 0;              // of the norm; 0: the model's

  float epsilon(const ModelConfig& config) const { return eps != 0 ? eps : config.rms_norm_eps; }
};

WeightKernelShape shape_with(const WeightRows& weights, const VulkanDeviceInfo& device,
                             std::uint32_t threads) {
  WeightKernelShape shape = usual_shape(weights, device);
  shape.threads = threads;
  return shape;
}

// Products of up to kFewRows rows.
void record_matvec(const PathParts& p, CommandList& list, const DeviceMatrix& w, const Inputs& in,
                   std::uint64_t y, std::uint32_t rows) {
  const WeightRows weights = weight_rows(w);
  const WeightKernelShape cut = shape_with(weights, p.device, kProductThreads);
  const VulkanKernel& kernel = stage_kernel(
      p, list, shader_name("matvec", weights.format),
      matvec_constants(
          weights, cut, p.device,
          {.has_norm = in.factor != 0, .adds = in.added != 0, .is_indexed = in.indices != 0}));
  for (const DeviceRows& piece : w.pieces) {
    list.dispatch(
        kernel,
        shader::MatvecArgs{.codes = piece.address[Component::kCodes],
                           .scales = piece.address[Component::kScales],
                           .biases = piece.address[Component::kBiases],
                           .x = in.x,
                           .factor = in.factor,
                           .y = y + piece.first * sizeof(float),
                           .added = in.added == 0 ? 0 : in.added + piece.first * sizeof(float),
                           .indices = in.indices,
                           .tables = p.weights.tables,
                           .rows = count32(piece.count),
                           .x_stride = count32(w.cols),
                           .y_stride = count32(w.rows),
                           .eps = in.epsilon(p.config)},
        {groups_for_rows(cut, piece.count, p.device), rows, 1});
  }
}

// A matrix and where its product goes.
struct Product {
  const DeviceMatrix* w = nullptr;
  std::uint64_t y = 0;
};

// Whether matvec_fixed's arguments can name the matrix: they count in units.
bool is_on_unit(const DeviceMatrix& w) {
  return std::all_of(w.pieces.begin(), w.pieces.end(), [](const DeviceRows& piece) {
    return std::all_of(piece.address.values.begin(), piece.address.values.end(),
                       [](std::uint64_t a) { return a % MOE_FIXED_UNIT == 0; });
  });
}

// Whether products with the same inputs are one dispatch of matvec_fixed.
bool are_together(const DeviceMatrix& a, const DeviceMatrix& b) {
  return a.format == b.format && a.cols == b.cols && a.pieces.size() == 1 && b.pieces.size() == 1 &&
         is_on_unit(b);
}

// In a stage that waits by counters a lane loads while it waits: more rows and chunks are in flight
// than elsewhere, in the same order of sums.
WeightKernelShape ordered_shape(const WeightRows& weights, WeightKernelShape cut, bool is_several) {
  // A vocabulary's rows are taken in many turns, by threads whose registers are few.
  constexpr std::uint64_t kManyRows = 65536;
  std::uint32_t most_steps = 4;
  if (is_several) {
    cut.rows = 2;
    if (!is_affine(weights.format)) most_steps = cut.steps;
  } else if (weights.rows >= kManyRows && !is_affine(weights.format)) {
    most_steps = 2;
  }
  const std::uint64_t chunks = groups_of(weights.cols, fixed_chunk_weights(weights.format.id));
  cut.steps = std::min(most_steps, groups_of(chunks, cut.lanes));
  return cut;
}

FixedPlaces places_behind(std::span<const Product> products) {
  FixedPlaces places{};
  for (std::size_t i = 1; i < products.size(); ++i) {
    places[i - 1] = count32((products[i].y - products.front().y) / sizeof(float));
  }
  return places;
}

// Floats from y to what is added to it.
std::int32_t distance_of(std::uint64_t added, std::uint64_t y) {
  if (added == 0) return 0;
  return static_cast<std::int32_t>(static_cast<std::int64_t>(added - y) /
                                   static_cast<std::int64_t>(sizeof(float)));
}

// One dispatch for products that are_together(), or for a piece of one.
void record_fixed(const PathParts& p, CommandList& list, std::span<const Product> products,
                  const DeviceRows& piece, const Inputs& in, std::uint32_t rows) {
  const DeviceMatrix& w = *products.front().w;
  const bool is_several = products.size() > 1;
  const WeightRows weights = weight_rows(w);
  std::uint64_t all_rows = piece.count;
  for (const Product& other : products.subspan(1)) all_rows += other.w->rows;
  WeightKernelShape cut = fixed_shape(
      weights, p.device, is_several && is_affine(w.format) ? kManyRowLanes : kFewRowLanes);
  cut.threads = kProductThreads;
  if (list.is_ordered()) cut = ordered_shape(weights, cut, is_several);
  const std::uint32_t at_once =
      cut.threads / std::min(cut.lanes, p.device.subgroup_size) * cut.rows;
  const std::uint32_t turns =
      is_several ? groups_of(groups_of(all_rows, at_once), kMostProductThreads / cut.threads) : 0;
  const VulkanKernel& kernel = stage_kernel(
      p, list, shader_name("matvec_fixed", weights.format),
      matvec_fixed_constants(
          weights, cut, p.device,
          {.has_norm = in.factor != 0, .adds = in.added != 0, .is_indexed = in.indices != 0}, turns,
          in.epsilon(p.config), places_behind(products)));
  shader::MatvecFixedArgs args{.base = 0,
                               .x = in.x,
                               .factor = in.factor,
                               .y = products.front().y + piece.first * sizeof(float),
                               .indices = in.indices,
                               .tables = p.weights.tables,
                               .codes = {},
                               .scales = {},
                               .biases = {},
                               .rows = {},
                               .y_stride = count32(w.rows),
                               .added_at = distance_of(in.added, products.front().y)};
  // Of what the format lacks the address is 0, which is never read.
  std::uint64_t base = ~std::uint64_t{0};
  const auto piece_of = [&](std::size_t i) -> const DeviceRows& {
    return i == 0 ? piece : products[i].w->pieces.front();
  };
  for (std::size_t i = 0; i < products.size(); ++i) {
    for (const std::uint64_t address : piece_of(i).address.values) {
      if (address != 0) base = std::min(base, address);
    }
  }
  args.base = base;
  std::uint32_t groups = 0;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const DeviceRows& of = piece_of(i);
    const auto units = [&](Component c) {
      return of.address[c] == 0 ? 0U : count32((of.address[c] - base) / MOE_FIXED_UNIT);
    };
    args.codes[i] = units(Component::kCodes);
    args.scales[i] = units(Component::kScales);
    args.biases[i] = units(Component::kBiases);
    args.rows[i] = count32(of.count);
    groups += is_several ? groups_of(of.count, std::uint64_t{at_once} * turns)
                         : groups_for_rows(cut, of.count, p.device);
  }
  list.dispatch(kernel, args, {groups, rows, 1});
}

// Products with the same inputs, with no barrier between them.
void record_products(const PathParts& p, CommandList& list, std::span<const Product> products,
                     const Inputs& in, std::uint32_t rows) {
  while (!products.empty()) {
    const DeviceMatrix& w = *products.front().w;
    std::size_t count = 1;
    if (!has_fixed_products(weight_rows(w), 1, p.device) || !is_on_unit(w)) {
      record_matvec(p, list, w, in, products.front().y, rows);
    } else {
      while (count < std::min<std::size_t>(products.size(), MOE_FIXED_MATRICES) &&
             are_together(w, *products[count].w) && products[count].y >= products.front().y) {
        ++count;
      }
      if (count > 1) {
        record_fixed(p, list, products.first(count), w.pieces.front(), in, rows);
      } else {
        for (const DeviceRows& piece : w.pieces) {
          record_fixed(p, list, products.first(1), piece, in, rows);
        }
      }
    }
    products = products.subspan(count);
  }
}

void record_cap(const PathParts& p, CommandList& list, std::uint32_t rows) {
  constexpr std::uint32_t kThreads = 256;
  constexpr std::uint32_t kMostGroups = 1024;
  const std::uint64_t count = std::uint64_t{rows} * p.config.vocab_size;
  list.dispatch(p.kernels.get("cap_logits", {kThreads}),
                shader::CapLogitsArgs{
                    .logits = p.scratch.logits, .count = count32(count), .cap = p.config.logit_cap},
                {std::min(groups_of(count, kThreads), kMostGroups), 1, 1});
}

PathParts with_scratch(const PathParts& p, const DeviceScratch& scratch) {
  return {.config = p.config,
          .device = p.device,
          .kernels = p.kernels,
          .weights = p.weights,
          .experts = p.experts,
          .scratch = scratch,
          .tables = p.tables,
          .scratch_buffer = p.scratch_buffer,
          .kv_encoding = p.kv_encoding,
          .context = p.context,
          .grid_widths = p.grid_widths};
}

class FewRowsPath final : public Path {
 public:
  explicit FewRowsPath(const PathParts& parts)
      : base_(parts.scratch),
        now_(base_),
        p_(with_scratch(parts, now_)),
        c_(p_.config),
        handed_(c_, base_) {}

  void begin(CommandList& list, const BatchShape& shape) override {
    now_ = base_;
    if (!list.is_ordered()) return;
    now_.hidden = handed_.first_hidden();
    constexpr std::uint32_t kThreads = 256;
    constexpr std::uint32_t kMostGroups = 1024;
    const HandedScratch::Range cleared = handed_.cleared(shape.rows);
    const std::uint32_t vectors = count32(cleared.bytes / 16);
    list.dispatch(
        p_.kernels.get("fill_words", {kThreads}),
        shader::FillWordsArgs{.to = cleared.address, .count = vectors, .word = MOE_NOT_HANDED},
        {std::min(groups_of(vectors, kThreads), kMostGroups), 1, 1});
  }
  const PathParts& parts() const override { return p_; }

  void embed(CommandList& list, const BatchShape& shape) override { record_embed(p_, list, shape); }

  void mix(CommandList& list, const BatchShape& shape, std::uint32_t layer) override {
    enter(list, shape, layer);
    const DeviceLayer& weights = p_.weights.layers[layer];
    const Inputs normed{.x = now_.hidden, .factor = weights.input_norm};
    if (const auto* attention = std::get_if<DeviceAttention>(&weights.mixer)) {
      const std::array products{Product{&attention->q, now_.projected},
                                Product{&attention->k, now_.keys},
                                Product{&attention->v, now_.values}};
      record_products(p_, list, std::span(products).first(attention->spec.values_are_keys ? 2 : 3),
                      normed, shape.rows);
      list.barrier();
      attend(list, *attention, shape, layer);
      add_mixed(list, attention->o, shape, layer);
    } else if (const auto* latent = std::get_if<DeviceLatent>(&weights.mixer)) {
      project_latent(list, *latent, normed, shape);
      record_latent(p_, list, shape, layer, LatentForm::kSplit);
      add_mixed(list, latent->o, shape, layer);
    } else {
      const auto& delta = std::get<DeviceDelta>(weights.mixer);
      record_products(
          p_, list,
          std::array{Product{&delta.in_qkv, now_.projected}, Product{&delta.in_z, now_.delta_z},
                     Product{&delta.in_b, now_.delta_b}, Product{&delta.in_a, now_.delta_a}},
          normed, shape.rows);
      list.barrier();
      step_delta(list, delta, shape, layer);
      add_mixed(list, delta.out, shape, layer);
    }
  }

  // The last work group of a row to be done with its logits makes the choices.
  void route(CommandList& list, const BatchShape& shape, std::uint32_t layer) override {
    const DeviceMoe& moe = p_.weights.layers[layer].moe;
    if (!moe.has_experts) return;
    const bool has_gate = moe.has_shared && moe.has_shared_gate;
    std::uint32_t groups = router_groups(list, moe.router);
    if (has_gate) groups += router_groups(list, moe.shared_expert_gate);
    record_router(list, moe.router, now_.router_logits, groups, shape, layer);
    if (has_gate) {
      record_router(list, moe.shared_expert_gate, now_.shared_logits, groups, shape, layer);
    }
    if (shared_goes_ahead(list, layer)) {
      gate_up_fused(list, shape, layer, *p_.experts.layer(layer).shared_kind);
    }
    list.barrier();
  }

  void run_experts(CommandList& list, const BatchShape& shape, std::uint32_t layer) override {
    const LayerExperts& experts = p_.experts.layer(layer);
    bool has_split = false;
    for (std::uint32_t kind = 0; kind < experts.kinds.size(); ++kind) {
      const ExpertLayout& layout = experts.kinds[kind];
      if (is_fused(layout)) continue;
      gate_up(list, shape, layer, kind, {Projection::kGate}, activated(p_, layout));
      gate_up(list, shape, layer, kind, {Projection::kUp}, raised(p_, layout));
      has_split = true;
    }
    if (has_split) multiply_activated(list, shape, layer);
    const bool is_ahead = shared_goes_ahead(list, layer);
    for (std::uint32_t kind = 0; kind < experts.kinds.size(); ++kind) {
      if (!is_fused(experts.kinds[kind]) || (is_ahead && kind == experts.shared_kind)) continue;
      gate_up_fused(list, shape, layer, kind);
    }
    if (is_ahead) down(list, shape, layer, *experts.shared_kind, true, {1, 1});
    list.barrier();
    if (!p_.weights.layers[layer].moe.is_plain_sum) down_apart(list, shape, layer);
  }

  void add_experts(CommandList& list, const BatchShape& shape, std::uint32_t layer) override {
    const LayerExperts& experts = p_.experts.layer(layer);
    const std::uint64_t records = p_.experts.holds_all() ? 0 : experts.table;
    if (!p_.weights.layers[layer].moe.is_plain_sum) {
      record_join_network(p_, list, shape, layer, records);
      list.barrier();
      return;
    }
    // Kinds that are added one after another; else each slot by itself, then all of them.
    const bool adds = experts.kinds.size() == 1 ||
                      std::all_of(experts.kinds.begin(), experts.kinds.end(),
                                  [&](const ExpertLayout& k) { return has_fixed_down(k, layer); });
    const bool is_ahead = shared_goes_ahead(list, layer);
    StagesBack stages;
    for (const std::uint32_t kind : kinds_in_order(experts)) {
      if (is_ahead && kind == experts.shared_kind) continue;
      down(list, shape, layer, kind, adds, stages);
      if (!adds) continue;
      list.barrier();
      ++stages.chosen;
      ++stages.activated;
    }
    if (adds) return;
    list.barrier();
    record_combine(p_, list, shape, layer, records);
    list.barrier();
  }

 private:
  // The slots that experts of a kind may have.
  struct SlotRange {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  // How many stages back, in an ordered list, the choices were made and the activations.
  struct StagesBack {
    std::uint32_t chosen = 2;
    std::uint32_t activated = 1;
  };
  SlotRange slots_of_kind(std::uint32_t layer, std::uint32_t kind) const {
    const std::uint32_t slots = slots_of(c_, p_.weights.layers[layer]);
    const auto shared = p_.experts.layer(layer).shared_kind;
    if (!shared.has_value()) return {0, slots};
    return kind == *shared ? SlotRange{slots - 1, 1} : SlotRange{0, slots - 1};
  }

  // The down projections of all kinds, each slot's by itself.
  void down_apart(CommandList& list, const BatchShape& shape, std::uint32_t layer) {
    for (std::uint32_t kind = 0; kind < p_.experts.layer(layer).kinds.size(); ++kind) {
      down(list, shape, layer, kind, false, {});
    }
    list.barrier();
  }

  // Plain rows are many chunks: more of them in flight, and work groups on more cores.
  WeightKernelShape router_shape(const CommandList& list, const DeviceMatrix& w) const {
    const bool is_plain = qformat_info(w.format.id).kind == QKind::kPlain;
    WeightKernelShape cut =
        shape_with(weight_rows(w), p_.device, is_plain ? kPlainRouterThreads : kRouterThreads);
    if (is_plain) cut.steps = list.is_ordered() ? 2 * kPlainRouterSteps : kPlainRouterSteps;
    return cut;
  }
  std::uint32_t router_groups(const CommandList& list, const DeviceMatrix& w) const {
    std::uint32_t groups = 0;
    for (const DeviceRows& piece : w.pieces) {
      groups += groups_for_rows(router_shape(list, w), piece.count, p_.device);
    }
    return groups;
  }

  // `groups`: of both products together.
  void record_router(CommandList& list, const DeviceMatrix& w, std::uint64_t y,
                     std::uint32_t groups, const BatchShape& shape, std::uint32_t layer) {
    const DeviceLayer& weights = p_.weights.layers[layer];
    const WeightRows rows = weight_rows(w);
    const WeightKernelShape cut = router_shape(list, w);
    std::vector<std::uint32_t> constants =
        matvec_constants(rows, cut, p_.device, {.has_norm = true});
    const std::vector<std::uint32_t> routing = routing_constants(p_, weights.moe);
    constants.insert(constants.end(), routing.begin(), routing.end());
    constants.push_back(std::bit_cast<std::uint32_t>(c_.rms_norm_eps));
    const bool is_gate = y == now_.shared_logits;
    const DeviceFloats own = is_gate ? weights.moe.shared_input_norm : weights.moe.router_norm;
    const std::string_view program =
        has_fixed_products(rows, 1, p_.device) ? "router_fixed" : "router";
    const VulkanKernel& kernel =
        stage_kernel(p_, list, shader_name(program, rows.format), std::move(constants));
    for (const DeviceRows& piece : w.pieces) {
      list.dispatch(kernel,
                    shader::RouterArgs{.codes = piece.address[Component::kCodes],
                                       .scales = piece.address[Component::kScales],
                                       .biases = piece.address[Component::kBiases],
                                       .x = now_.hidden,
                                       .factor = own != 0 ? own : weights.post_norm,
                                       .tables = p_.weights.tables,
                                       .y = y + piece.first * sizeof(float),
                                       .batch = p_.tables.rows(),
                                       .logits = now_.router_logits,
                                       .shared_logits = now_.shared_logits,
                                       .choices = now_.choices,
                                       .row_error = now_.row_error,
                                       .arrived = now_.arrived,
                                       .bias = weights.moe.router_numbers,
                                       .rows = count32(piece.count),
                                       .options = (weights.moe.has_shared ? 1U : 0U) |
                                                  (renormalises(weights.moe) ? 2U : 0U) |
                                                  (is_gate ? 4U : 0U) | layer << 3 |
                                                  groups << MOE_ROUTER_GROUPS_AT},
                    {groups_for_rows(cut, piece.count, p_.device), shape.rows, 1});
    }
  }

  // In an ordered list each layer has memory of its own for what its stages hand on.
  void enter(const CommandList& list, const BatchShape& shape, std::uint32_t layer) {
    if (!list.is_ordered()) return;
    const std::uint64_t hidden = now_.hidden;
    handed_layer_ = handed_.of_layer(layer, shape.rows);
    now_ = handed_layer_.scratch;
    now_.hidden = hidden;
  }

  void add_mixed(CommandList& list, const DeviceMatrix& w, const BatchShape& shape,
                 std::uint32_t layer) {
    const DeviceLayer& weights = p_.weights.layers[layer];
    if (weights.mixer_norm != 0) {
      record_products(p_, list, std::array{Product{&w, now_.normed}}, {.x = now_.mixed},
                      shape.rows);
      list.barrier();
      return record_add_normed(p_, list, shape, weights.mixer_norm);
    }
    const std::uint64_t added = now_.hidden;
    if (list.is_ordered()) now_.hidden = handed_layer_.behind_mixer;
    record_products(p_, list, std::array{Product{&w, now_.hidden}},
                    {.x = now_.mixed, .added = added}, shape.rows);
    list.barrier();
  }

  void project_latent(CommandList& list, const DeviceLatent& w, const Inputs& normed,
                      const BatchShape& shape) {
    const bool has_rank = w.spec.has_query_rank;
    // In the order of their results, so that they may be one dispatch.
    record_products(
        p_, list,
        has_rank ? std::array{Product{&w.kv_down, now_.keys}, Product{&w.q_down, now_.query_down}}
                 : std::array{Product{&w.q, now_.projected}, Product{&w.kv_down, now_.keys}},
        normed, shape.rows);
    list.barrier();
    if (!has_rank) return;
    record_products(p_, list, std::array{Product{&w.q, now_.projected}},
                    {.x = now_.query_down, .factor = w.q_down_norm, .eps = kLatentNormEps},
                    shape.rows);
    list.barrier();
  }

  void attend(CommandList& list, const DeviceAttention& weights, const BatchShape& shape,
              std::uint32_t layer) {
    record_qk_prepare(p_, list, shape, layer);
    list.barrier();
    const HeadSizes& heads = weights.heads;
    if (!has_whole_chunks(heads)) return record_attend_tiles(p_, list, shape, layer);
    const AttendShape cut = attend_shape(heads, p_.device.subgroup_size, p_.context);
    const std::uint32_t step = query_step(weights);
    const auto encoding = static_cast<std::uint32_t>(p_.kv_encoding);
    list.dispatch(stage_kernel(p_, list, "attend",
                               {cut.threads(), heads.head_dim, encoding, cut.lanes, cut.queries,
                                weights.sinks != 0 ? 1U : 0U, weights.spec.window.value_or(0)}),
                  shader::AttendArgs{.rows = p_.tables.rows(),
                                     .q = now_.projected,
                                     .caches = p_.tables.states(layer),
                                     .values = now_.split_values,
                                     .stats = now_.split_stats,
                                     .arrived = now_.arrived_heads,
                                     .attended = now_.mixed,
                                     .sinks = weights.sinks,
                                     .q_stride = heads.heads * step,
                                     .q_step = step,
                                     .num_heads = heads.heads,
                                     .kv_heads = heads.kv_heads,
                                     .has_gate = weights.spec.has_gate ? 1U : 0U},
                  {cut.splits, heads.kv_heads * cut.tiles, shape.rows});
    list.barrier();
  }

  void step_delta(CommandList& list, const DeviceDelta& weights, const BatchShape& shape,
                  std::uint32_t layer) {
    const DeltaStepShape cut = delta_step_shape(c_.linear_value_dim);
    list.dispatch(stage_kernel(p_, list, "delta_step",
                               {cut.threads, c_.linear_key_dim, c_.linear_value_dim,
                                c_.linear_conv_taps, cut.columns}),
                  shader::DeltaStepArgs{.slices = p_.tables.slices(),
                                        .states = p_.tables.states(layer),
                                        .qkv = now_.projected,
                                        .z = now_.delta_z,
                                        .a = now_.delta_a,
                                        .b = now_.delta_b,
                                        .conv = weights.conv,
                                        .decay_rate = weights.decay_rate,
                                        .dt_bias = weights.dt_bias,
                                        .norm = weights.norm,
                                        .mixed = now_.mixed,
                                        .qkv_stride = count32(conv_channels(c_)),
                                        .z_stride = c_.linear_value_heads * c_.linear_value_dim,
                                        .ab_stride = c_.linear_value_heads,
                                        .key_heads = c_.linear_key_heads,
                                        .value_heads = c_.linear_value_heads,
                                        .is_tiled = weights.tiled_v_heads ? 1U : 0U,
                                        .eps = c_.rms_norm_eps},
                  {c_.linear_value_heads, shape.slices, 1});
    list.barrier();
  }

  WeightKernelShape fixed_expert_shape(const CommandList& list, const WeightRows& weights) const {
    WeightKernelShape cut = fixed_shape(weights, p_.device, kExpertLanes);
    const bool loads_more = list.is_ordered() && is_k_quant(weights.format);
    if (!is_affine(weights.format)) cut.steps = loads_more ? 2 : 1;
    return cut;
  }

  // A long row in one turn, where a lane's registers hold its part.
  WeightKernelShape fixed_down_shape(const WeightRows& weights, std::uint32_t slots) const {
    constexpr std::uint32_t kMostSteps = 3;
    const std::uint64_t chunks = slots * weights.cols / fixed_chunk_weights(weights.format.id);
    const std::uint32_t steps = groups_of(chunks, kFixedDownThreads / kFixedDownRows);
    return {.threads = kFixedDownThreads, .rows = 1, .steps = std::clamp(steps, 1U, kMostSteps)};
  }

  // Whether the experts' work groups make the choice for themselves, while the router's stage makes
  // it for those who read it: down waits for both. The sum of a logit and its bias is written back,
  // which one alone may do.
  bool chooses_apart(const CommandList& list, std::uint32_t layer) const {
    const LayerExperts& experts = p_.experts.layer(layer);
    const DeviceMoe& moe = p_.weights.layers[layer].moe;
    if (!list.is_ordered() || !moe.has_experts || !moe.is_plain_sum) return false;
    if (moe.has_router_bias && std::holds_alternative<SoftmaxRouterSpec>(moe.routing)) return false;
    return std::all_of(experts.kinds.begin(), experts.kinds.end(), [&](const ExpertLayout& kind) {
      return is_fused(kind) &&
             has_fixed_products(weight_rows(kind.of(Projection::kGate)), 1, p_.device) &&
             has_fixed_products(weight_rows(kind.of(Projection::kUp)), 1, p_.device) &&
             has_fixed_down(kind, layer);
    });
  }

  // The shared expert in a format of its own needs no choice but for its weight: its gate and up
  // are computed beside the router, and its down beside the others' gate and up.
  bool shared_goes_ahead(const CommandList& list, std::uint32_t layer) const {
    return p_.experts.layer(layer).shared_kind.has_value() && chooses_apart(list, layer);
  }

  // In which their sums are added: the shared expert first.
  static std::vector<std::uint32_t> kinds_in_order(const LayerExperts& experts) {
    std::vector<std::uint32_t> kinds(experts.kinds.size());
    std::iota(kinds.begin(), kinds.end(), 0U);
    if (experts.shared_kind.has_value()) {
      std::rotate(kinds.begin(), kinds.begin() + *experts.shared_kind,
                  kinds.begin() + *experts.shared_kind + 1);
    }
    return kinds;
  }

  void gate_up_fused(CommandList& list, const BatchShape& shape, std::uint32_t layer,
                     std::uint32_t kind) {
    gate_up(list, shape, layer, kind, {Projection::kGate, Projection::kUp},
            activated(p_, p_.experts.layer(layer).kinds[kind]));
  }

  // The projections of `of`: both with SwiGLU, or one alone.
  void gate_up(CommandList& list, const BatchShape& shape, std::uint32_t layer, std::uint32_t kind,
               const std::vector<Projection>& of, std::uint64_t act) {
    const LayerExperts& experts = p_.experts.layer(layer);
    const ProjectionLayout& gate = experts.kinds[kind].of(of.front());
    const ProjectionLayout& up = experts.kinds[kind].of(of.back());
    const DeviceLayer& layer_weights = p_.weights.layers[layer];
    const DeviceMoe& moe = layer_weights.moe;
    const SlotRange slots = slots_of_kind(layer, kind);
    WeightRows weights = weight_rows(gate);
    weights.alignment = std::min(weights.alignment, weight_rows(up).alignment);
    const bool is_fixed = has_fixed_products(weights, 1, p_.device);
    const bool chooses = chooses_apart(list, layer);
    const WeightKernelShape cut =
        is_fixed ? fixed_expert_shape(list, weights) : usual_shape(weights, p_.device);
    const VulkanKernel& kernel = stage_kernel(
        p_, list, shader_name(is_fixed ? "gate_up_fixed" : "gate_up", weights.format),
        gate_up_constants(
            weights, cut, p_.device,
            {.has_norm = true,
             .is_single = of.size() == 1,
             .by_kind = experts.kind_table != 0,
             .activation = activation_of(layer_weights),
             .adds_bias = moe.gate_up_bias != 0,
             .routing = chooses ? routing_constants(p_, moe) : std::vector<std::uint32_t>{}}));
    // Of one matrix alone its own.
    const std::uint64_t bias_at =
        of.front() == Projection::kUp ? std::uint64_t{c_.expert_width} * sizeof(float) : 0;
    list.dispatch(
        kernel,
        shader::GateUpArgs{.records = experts.table,
                           .kinds = experts.kind_table,
                           .choices = chooses ? now_.routes + layer * sizeof(shader::RouteArgs)
                                              : choices_of(p_, layer_weights),
                           .x = now_.hidden,
                           .factor = experts.has_own_inputs(kind) ? moe.shared_input_norm
                                                                  : layer_weights.post_norm,
                           .act = act,
                           .tables = p_.weights.tables,
                           .bias = moe.gate_up_bias + bias_at,
                           .experts = c_.num_experts + 1,
                           .kind = kind,
                           .slots = slots_of(c_, layer_weights),
                           .first_slot = slots.first,
                           .rows = count32(gate.rows),
                           .gate_codes = count32(gate.offset_of(Component::kCodes)),
                           .gate_scales = count32(gate.offset_of(Component::kScales)),
                           .gate_biases = count32(gate.offset_of(Component::kBiases)),
                           .up_codes = count32(up.offset_of(Component::kCodes)),
                           .up_scales = count32(up.offset_of(Component::kScales)),
                           .up_biases = count32(up.offset_of(Component::kBiases)),
                           .x_stride = c_.hidden_size,
                           .act_stride = count32(gate.rows),
                           .eps = c_.rms_norm_eps},
        {groups_for_rows(cut, gate.rows, p_.device), slots.count, shape.rows});
  }

  void multiply_activated(CommandList& list, const BatchShape& shape, std::uint32_t layer) {
    const std::uint64_t pairs = std::uint64_t{shape.rows} * slots_of(c_, p_.weights.layers[layer]);
    list.barrier();
    record_swiglu(p_, list, pairs, layer);
    list.barrier();
  }

  bool has_fixed_down(const ExpertLayout& kind, std::uint32_t layer) const {
    return has_fixed_products(weight_rows(kind.of(Projection::kDown)),
                              slots_of(c_, p_.weights.layers[layer]), p_.device);
  }

  // The down projections of a kind: added to the residual stream, or each by itself.
  void down(CommandList& list, const BatchShape& shape, std::uint32_t layer, std::uint32_t kind,
            bool adds, const StagesBack& stages) {
    const LayerExperts& experts = p_.experts.layer(layer);
    const ProjectionLayout& w = experts.kinds[kind].of(Projection::kDown);
    const SlotRange slots = slots_of_kind(layer, kind);
    const DeviceFloats down_bias = p_.weights.layers[layer].moe.down_bias;
    const WeightRows weights = weight_rows(w);
    const bool is_fixed = adds && has_fixed_down(experts.kinds[kind], layer);
    const std::uint32_t block_rows = is_fixed ? kFixedDownRows : kDownRows;
    const WeightKernelShape cut =
        is_fixed ? fixed_down_shape(weights, slots.count)
                 : usual_down_shape(weights, p_.device, slots.count, kDownRows);
    const VulkanKernel& kernel =
        stage_kernel(p_, list, shader_name(is_fixed ? "down_fixed" : "down", weights.format),
                     down_constants(weights, cut, p_.device,
                                    {.slots = slots.count,
                                     .block_rows = block_rows,
                                     .by_kind = experts.kind_table != 0,
                                     .slots_apart = !adds,
                                     .adds_bias = down_bias != 0,
                                     .chosen_back = stages.chosen,
                                     .activated_back = stages.activated}));
    const std::uint64_t added = now_.hidden;
    if (adds && list.is_ordered()) now_.hidden = handed_layer_.behind_kinds[kind];
    list.dispatch(kernel,
                  shader::DownArgs{.records = experts.table,
                                   .kinds = experts.kind_table,
                                   .choices = choices_of(p_, p_.weights.layers[layer]),
                                   .act = activated(p_, experts.kinds[kind]),
                                   .y = adds ? now_.hidden : now_.results,
                                   .added = added,
                                   .tables = p_.weights.tables,
                                   .bias = down_bias,
                                   .experts = c_.num_experts + 1,
                                   .kind = kind,
                                   .slots = slots_of(c_, p_.weights.layers[layer]),
                                   .first_slot = slots.first,
                                   .rows = count32(w.rows),
                                   .codes = count32(w.offset_of(Component::kCodes)),
                                   .scales = count32(w.offset_of(Component::kScales)),
                                   .biases = count32(w.offset_of(Component::kBiases)),
                                   .act_stride = count32(w.cols),
                                   .y_stride = count32(w.rows)},
                  {groups_of(w.rows, block_rows), shape.rows, 1});
  }

  const DeviceScratch& base_;
  DeviceScratch now_;  // of the list that is recorded, at this place
  PathParts p_;        // with that
  const ModelConfig& c_;
  HandedScratch handed_;
  HandedLayer handed_layer_;  // of an ordered list, that is recorded
};

}  // namespace

std::unique_ptr<Path> make_few_rows_path(const PathParts& parts) {
  return std::make_unique<FewRowsPath>(parts);
}

void record_head(const PathParts& parts, CommandList& list, std::uint32_t rows) {
  record_products(parts, list, std::array{Product{&parts.weights.lm_head, parts.scratch.logits}},
                  {.x = parts.scratch.hidden,
                   .factor = parts.weights.final_norm,
                   .indices = parts.tables.logit_rows()},
                  rows);
  if (parts.config.logit_cap == 0) return;
  list.barrier();
  record_cap(parts, list, rows);
}

}  // namespace moepack
