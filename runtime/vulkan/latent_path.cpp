#include "runtime/vulkan/latent_path.h"

#include <string>
#include <variant>
#include <vector>

#include "runtime/model/latent_scale.h"
#include "runtime/vulkan/path_steps.h"
#include "shaders/latent_args.h"

namespace moepack {
namespace {

constexpr std::uint32_t kLatentPrepareThreads = 64;
constexpr std::uint32_t kLatentAttendThreads = 256;
constexpr std::uint32_t kLatentMergeThreads = 128;
constexpr std::uint32_t kAbsorbColumns = 128;  // of a work group of latent_absorb

const DeviceLatent& latent_weights(const PathParts& p, std::uint32_t layer) {
  return std::get<DeviceLatent>(p.weights.layers[layer].mixer);
}

std::uint32_t width_of(const ModelConfig& c) { return c.kv_rank + c.rotary_dim; }

std::vector<std::uint32_t> cache_constants(const PathParts& p, std::uint32_t threads) {
  return {threads, width_of(p.config), static_cast<std::uint32_t>(p.kv_encoding), p.config.kv_rank};
}

void prepare_latent(const PathParts& p, CommandList& list, const BatchShape& shape,
                    std::uint32_t layer) {
  const ModelConfig& c = p.config;
  const DeviceLatent& w = latent_weights(p, layer);
  list.dispatch(p.kernels.get("latent_prepare", cache_constants(p, kLatentPrepareThreads)),
                shader::LatentPrepareArgs{.rows = p.tables.rows(),
                                          .q = p.scratch.projected,
                                          .keys = p.scratch.keys,
                                          .latent = p.scratch.latent_queries,
                                          .norm = w.kv_norm,
                                          .inverse_frequency = p.weights.inverse_frequency,
                                          .caches = p.tables.states(layer),
                                          .num_heads = c.num_heads,
                                          .head_dim = c.head_dim,
                                          .is_interleaved = c.rope_interleaved ? 1U : 0U,
                                          .amplitude = p.weights.rope_amplitude,
                                          .scale = latent_softmax_scale(c),
                                          .eps = kLatentNormEps},
                {c.num_heads + 1, shape.rows, 1});
}

// What a product of each head with its own rows of kv_b_proj reads and writes.
struct HeadProduct {
  const char* operation;
  std::uint32_t first_row;
  std::uint32_t rows;
  std::uint32_t groups;  // of a head and some tokens
  std::uint64_t x;
  std::uint32_t x_head;
  std::uint64_t y;
  std::uint32_t y_head;
  float scale;
};

void multiply_heads(const PathParts& p, CommandList& list, const BatchShape& shape,
                    std::uint32_t layer, const HeadProduct& product) {
  const ModelConfig& c = p.config;
  const DeviceMatrix& w = latent_weights(p, layer).kv_up;
  const std::uint32_t head_rows = c.head_dim - c.rotary_dim + c.value_dim;
  const WeightRows rows = weight_rows(w);
  const std::uint32_t tokens = latent_tokens(rows, shape.rows, p.device);
  const VulkanKernel& kernel =
      weight_kernel(p, product.operation, rows, latent_constants(rows, tokens));
  for (const DeviceRows& piece : w.pieces) {  // of whole heads
    list.dispatch(
        kernel,
        shader::LatentHeadArgs{.codes = piece.address[Component::kCodes],
                               .scales = piece.address[Component::kScales],
                               .biases = piece.address[Component::kBiases],
                               .tables = p.weights.tables,
                               .x = product.x,
                               .y = product.y,
                               .first_head = count32(piece.first / head_rows),
                               .head_rows = head_rows,
                               .first_row = product.first_row,
                               .rows = product.rows,
                               .tokens = shape.rows,
                               .x_token = c.num_heads * product.x_head,
                               .x_head = product.x_head,
                               .y_token = c.num_heads * product.y_head,
                               .y_head = product.y_head,
                               .scale = product.scale},
        {product.groups, count32(piece.count / head_rows), groups_of(shape.rows, tokens)});
  }
}

void absorb_queries(const PathParts& p, CommandList& list, const BatchShape& shape,
                    std::uint32_t layer) {
  const ModelConfig& c = p.config;
  multiply_heads(p, list, shape, layer,
                 {.operation = "latent_absorb",
                  .first_row = 0,
                  .rows = c.head_dim - c.rotary_dim,
                  .groups = groups_of(c.kv_rank, kAbsorbColumns),
                  .x = p.scratch.projected,
                  .x_head = c.head_dim,
                  .y = p.scratch.latent_queries,
                  .y_head = width_of(c),
                  .scale = latent_softmax_scale(c)});
}

void expand_heads(const PathParts& p, CommandList& list, const BatchShape& shape,
                  std::uint32_t layer) {
  const ModelConfig& c = p.config;
  multiply_heads(p, list, shape, layer,
                 {.operation = "latent_expand",
                  .first_row = c.head_dim - c.rotary_dim,
                  .rows = c.value_dim,
                  .groups = groups_of(c.value_dim, MOE_LATENT_ROWS),
                  .x = p.scratch.latent_queries,
                  .x_head = width_of(c),
                  .y = p.scratch.mixed,
                  .y_head = c.value_dim,
                  .scale = 1});
}

void attend_latent(const PathParts& p, CommandList& list, const BatchShape& shape,
                   std::uint32_t layer, bool is_split) {
  const std::uint32_t heads = p.config.num_heads;
  const std::uint32_t splits = is_split ? latent_splits(heads, p.context) : 1;
  std::vector<std::uint32_t> constants = cache_constants(p, kLatentAttendThreads);
  constants.push_back(is_split ? 1 : 0);
  const std::uint64_t queries = std::uint64_t{heads} * (is_split ? 1 : shape.most_rows);
  list.dispatch(
      p.kernels.get("latent_attend", std::move(constants)),
      shader::LatentAttendArgs{.rows = p.tables.rows(),
                               .slices = p.tables.slices(),
                               .latent = p.scratch.latent_queries,
                               .caches = p.tables.states(layer),
                               .values = p.scratch.split_values,
                               .stats = p.scratch.split_stats,
                               .num_heads = heads},
      {groups_of(queries, MOE_LATENT_TILE), splits, is_split ? shape.rows : shape.slices});
}

void merge_splits(const PathParts& p, CommandList& list, const BatchShape& shape) {
  list.dispatch(p.kernels.get("latent_merge", cache_constants(p, kLatentMergeThreads)),
                shader::LatentMergeArgs{.rows = p.tables.rows(),
                                        .values = p.scratch.split_values,
                                        .stats = p.scratch.split_stats,
                                        .latent = p.scratch.latent_queries,
                                        .splits = latent_splits(p.config.num_heads, p.context)},
                {p.config.num_heads, shape.rows, 1});
}

}  // namespace

std::string missing_latent_part(const ModelConfig& config) {
  constexpr std::uint32_t kMostRank = 1024;
  if (config.kv_rank % 4 == 0 && config.rotary_dim % 4 == 0 && config.kv_rank <= kMostRank) {
    return "";
  }
  return "latent attention with compressed rows of " + std::to_string(config.kv_rank) + " + " +
         std::to_string(config.rotary_dim) + " values";
}

void record_latent(const PathParts& parts, CommandList& list, const BatchShape& shape,
                   std::uint32_t layer, LatentForm form) {
  const bool is_split = form == LatentForm::kSplit;
  prepare_latent(parts, list, shape, layer);
  absorb_queries(parts, list, shape, layer);
  list.barrier();
  attend_latent(parts, list, shape, layer, is_split);
  list.barrier();
  if (is_split) {
    merge_splits(parts, list, shape);
    list.barrier();
  }
  expand_heads(parts, list, shape, layer);
  list.barrier();
}

}  // namespace moepack
