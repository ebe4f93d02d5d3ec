#include "runtime/vulkan/weight_kernels.h"

#include <algorithm>
#include <bit>

#include "formats/base/bytes.h"
#include "formats/weights/ggml_grids.h"
#include "shaders/expert_activation.h"
#include "shaders/weight_tables.h"

namespace moepack {
namespace {

constexpr std::uint32_t kLeastLanes = 8;
constexpr std::uint32_t kMostLanes = 32;
constexpr std::uint32_t kMostThreads = 1024;
// A matrix of at most so many outputs, a router's, has too few usual tiles for a large device.
constexpr std::uint64_t kFewOutputs = 1024;
// From so many large tiles on they keep a large device busy.
constexpr std::uint64_t kManyTiles = 200;
// Bytes of shared memory that the programs use beside inputs and tables.
constexpr std::uint64_t kOtherSharedBytes = 512;
// The same with what makes the choices of up to 1024 experts.
constexpr std::uint64_t kRouterSharedBytes = 6144;

// Of a lane's chunk that the row has, all steps together.
double lanes_in_use(std::uint64_t chunks, std::uint32_t lanes) {
  return static_cast<double>(chunks) / static_cast<double>(div_up(chunks, lanes) * lanes);
}

// Bytes of shared memory that the tables of a format take.
std::uint64_t table_bytes(QFormatId format) {
  switch (format) {
    case QFormatId::kIq2Xxs:
    case QFormatId::kIq3S:
      return 2048;
    case QFormatId::kIq2Xs:
      return 4096;
    case QFormatId::kIq2S:
      return 8192;
    case QFormatId::kIq1S:
    case QFormatId::kIq1M:
      return 16384;
    case QFormatId::kIq3Xxs:
      return 1024;
    default:
      return 64;
  }
}

// Whether shared memory holds that many rows of inputs, with two sums for every eight.
bool inputs_fit(const WeightRows& weights, std::uint64_t rows, std::uint64_t more,
                const VulkanDeviceInfo& device) {
  const std::uint64_t chunk = chunk_weights(weights.format.id);
  const std::uint64_t floats = chunk * (rows * div_up(weights.cols, chunk) + 1);
  const std::uint64_t bytes =
      floats * 4 + floats + table_bytes(weights.format.id) + kOtherSharedBytes + more;
  return bytes <= device.shared_bytes;
}

std::vector<std::uint32_t> row_constants(const WeightRows& weights, std::uint32_t threads) {
  return {threads, static_cast<std::uint32_t>(weights.cols), weights.alignment,
          std::max(weights.format.group_size, 1U),
          weights.format.scale_type == DType::kF16 ? 1U : 0U};
}

// Those of row_dots.glsl and input_row.glsl too.
std::vector<std::uint32_t> dot_constants(const WeightRows& weights, const WeightKernelShape& shape,
                                         bool is_input_shared, bool has_norm) {
  std::vector<std::uint32_t> constants = row_constants(weights, shape.threads);
  constants.insert(constants.end(), {shape.lanes, shape.rows, shape.steps,
                                     is_input_shared ? 1U : 0U, has_norm ? 1U : 0U});
  return constants;
}

template <std::size_t Entries>
void copy_grid(const std::array<std::uint16_t, Entries>& grid, std::size_t at,
               std::vector<std::uint16_t>& tables) {
  std::copy(grid.begin(), grid.end(), tables.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

std::uint32_t row_alignment(const WeightFormat& format, std::uint64_t cols, std::uint64_t codes) {
  const auto bytes = matrix_bytes(format, 1, cols);
  const std::uint64_t row_bytes = bytes.has_value() ? bytes->codes() : 0;
  return 1U << std::min(4, std::countr_zero(codes | row_bytes | 16U));
}

std::uint32_t chunk_weights(QFormatId format) {
  switch (format) {
    case QFormatId::kF32:
    case QFormatId::kF16:
    case QFormatId::kBf16:
      return 8;
    case QFormatId::kQ2K:
    case QFormatId::kQ3K:
    case QFormatId::kTq20:
      return 64;
    default:
      return 32;
  }
}

WeightKernelShape usual_shape(const WeightRows& weights, const VulkanDeviceInfo& device) {
  const std::uint64_t chunk = chunk_weights(weights.format.id);
  const std::uint64_t chunks = div_up(weights.cols, chunk);
  WeightKernelShape shape;
  shape.lanes = std::min(kMostLanes, device.subgroup_size);
  for (std::uint32_t lanes = shape.lanes / 2; lanes >= kLeastLanes; lanes /= 2) {
    if (lanes_in_use(chunks, lanes) > lanes_in_use(chunks, shape.lanes)) shape.lanes = lanes;
  }
  // One row and one step: many small teams hide more than a few with much in flight, and their
  // programs are short.
  shape.rows = 1;
  shape.steps = 1;
  return shape;
}

WeightKernelShape usual_down_shape(const WeightRows& weights, const VulkanDeviceInfo& device,
                                   std::uint32_t slots, std::uint32_t block_rows) {
  WeightKernelShape shape = usual_shape(weights, device);
  const std::uint64_t teams = div_up(std::uint64_t{slots} * block_rows, 2);
  const std::uint64_t subgroup = std::max(device.subgroup_size, 1U);
  const std::uint64_t threads = div_up(teams * shape.lanes, subgroup) * subgroup;
  shape.threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, kMostThreads));
  return shape;
}

std::uint32_t groups_for_rows(const WeightKernelShape& shape, std::uint64_t rows,
                              const VulkanDeviceInfo& device) {
  const std::uint64_t teams = shape.threads / std::min(shape.lanes, device.subgroup_size);
  const std::uint64_t at_once = div_up(rows, teams * shape.rows);
  const std::uint64_t turns = div_up(at_once, kMostProductThreads / shape.threads);
  return static_cast<std::uint32_t>(div_up(at_once, turns));
}

std::array<std::uint32_t, 2> activation_constants(const Activation& activation) {
  const auto number = [&]() -> std::uint32_t {
    switch (activation.kind) {
      case ExpertActivation::kSwiGlu:
        break;
      case ExpertActivation::kClampedSwiGlu:
        return MOE_ACTIVATION_CLAMPED_SWIGLU;
      case ExpertActivation::kGeGlu:
        return MOE_ACTIVATION_GEGLU;
    }
    return MOE_ACTIVATION_SWIGLU;
  };
  return {number(), std::bit_cast<std::uint32_t>(activation.limit)};
}

std::vector<std::uint32_t> matvec_constants(const WeightRows& weights,
                                            const WeightKernelShape& shape,
                                            const VulkanDeviceInfo& device,
                                            const MatvecOptions& options) {
  std::vector<std::uint32_t> constants =
      dot_constants(weights, shape, inputs_fit(weights, 1, 0, device), options.has_norm);
  constants.insert(constants.end(), {options.adds ? 1U : 0U, options.is_indexed ? 1U : 0U});
  return constants;
}

std::vector<std::uint32_t> gate_up_constants(const WeightRows& weights,
                                             const WeightKernelShape& shape,
                                             const VulkanDeviceInfo& device,
                                             const GateUpOptions& options) {
  std::vector<std::uint32_t> constants =
      dot_constants(weights, shape, inputs_fit(weights, 1, 0, device), options.has_norm);
  const auto [kind, limit] = activation_constants(options.activation);
  constants.insert(constants.end(), {options.is_single ? 1U : 2U, options.by_kind ? 1U : 0U, kind,
                                     limit, options.adds_bias ? 1U : 0U});
  if (!options.routing.empty()) {
    constants.push_back(1);
    constants.insert(constants.end(), options.routing.begin(), options.routing.end());
  }
  return constants;
}

std::vector<std::uint32_t> down_constants(const WeightRows& weights, const WeightKernelShape& shape,
                                          const VulkanDeviceInfo& device,
                                          const DownOptions& options) {
  const std::uint64_t products = std::uint64_t{options.slots} * (options.block_rows * 4 + 8);
  std::vector<std::uint32_t> constants =
      dot_constants(weights, shape, inputs_fit(weights, options.slots, products, device), false);
  constants.insert(constants.end(), {options.slots, options.by_kind ? 1U : 0U, options.block_rows,
                                     options.slots_apart ? 1U : 0U, options.adds_bias ? 1U : 0U,
                                     options.chosen_back, options.activated_back});
  return constants;
}

bool has_fixed_products(const WeightRows& weights, std::uint32_t slots,
                        const VulkanDeviceInfo& device) {
  if (!device.has_integer_dot) return false;
  if (is_block(weights.format) && !is_ggml_block(weights.format)) return false;
  switch (weights.format.id) {
    case QFormatId::kF32:
    case QFormatId::kF16:
    case QFormatId::kBf16:
    case QFormatId::kIq1S:
    case QFormatId::kIq1M:
    case QFormatId::kTq10:
    case QFormatId::kTq20:
    case QFormatId::kQ10:
    case QFormatId::kQ20:
    // Measured slower than float products on an NVIDIA H200.
    case QFormatId::kMxfp4:
    case QFormatId::kIq4Xs:
      return false;
    default:
      break;
  }
  const std::uint32_t chunk = fixed_chunk_weights(weights.format.id);
  if (is_affine(weights.format) && weights.format.group_size < chunk) return false;
  // Of 16 inputs 32 bytes, a scale and a sum.
  const std::uint64_t bytes = std::uint64_t{slots} * weights.cols / 16 * 40 +
                              table_bytes(weights.format.id) + kRouterSharedBytes;
  return weights.cols % chunk == 0 && bytes <= device.shared_bytes;
}

std::uint32_t fixed_chunk_weights(QFormatId format) {
  const bool is_wide = format == QFormatId::kQ2 || format == QFormatId::kIq3Xxs;
  return is_wide ? 64 : chunk_weights(format);
}

WeightKernelShape fixed_shape(const WeightRows& weights, const VulkanDeviceInfo& device,
                              std::uint32_t lanes) {
  const std::uint64_t chunks = div_up(weights.cols, fixed_chunk_weights(weights.format.id));
  WeightKernelShape shape;
  shape.lanes = std::min(lanes, device.subgroup_size);
  while (shape.lanes > kLeastLanes && shape.lanes / 2 >= chunks) shape.lanes /= 2;
  shape.rows = 1;
  // Blocks of 256 weights have scales that take registers, and so do more chunks at once.
  shape.steps = is_k_quant(weights.format) || chunks <= shape.lanes ? 1 : 2;
  return shape;
}

std::vector<std::uint32_t> matvec_fixed_constants(const WeightRows& weights,
                                                  const WeightKernelShape& shape,
                                                  const VulkanDeviceInfo& device,
                                                  const MatvecOptions& options, std::uint32_t turns,
                                                  float epsilon, const FixedPlaces& y_at) {
  std::vector<std::uint32_t> constants = matvec_constants(weights, shape, device, options);
  constants.insert(constants.end(), {turns, std::bit_cast<std::uint32_t>(epsilon)});
  constants.insert(constants.end(), y_at.begin(), y_at.end());
  return constants;
}

std::uint32_t latent_tokens(const WeightRows& weights, std::uint64_t rows,
                            const VulkanDeviceInfo& device) {
  // latent_expand's: the weights of a step, sums of threads; for each token inputs.
  constexpr std::uint64_t kFixedBytes = 8192 + 2048;
  constexpr std::uint64_t kTokenBytes = 64 * sizeof(float);
  std::uint32_t tokens = 32;
  while (tokens > 4 && (tokens / 2 >= rows ||
                        kFixedBytes + tokens * kTokenBytes + table_bytes(weights.format.id) >
                            device.shared_bytes)) {
    tokens /= 2;
  }
  return tokens;
}

std::vector<std::uint32_t> latent_constants(const WeightRows& weights, std::uint32_t tokens) {
  constexpr std::uint32_t kThreads = 128;
  std::vector<std::uint32_t> constants = row_constants(weights, kThreads);
  constants.push_back(tokens);
  return constants;
}

std::vector<std::uint32_t> embed_constants(const WeightRows& weights, std::uint32_t threads,
                                           float scale) {
  std::vector<std::uint32_t> constants = row_constants(weights, threads);
  constants.push_back(std::bit_cast<std::uint32_t>(scale));
  return constants;
}

ProductTile dense_tile(std::uint64_t outputs, std::uint64_t rows, bool is_cooperative) {
  constexpr ProductTile kSmall{.threads = 128, .outputs = 32, .tokens = 32};
  constexpr ProductTile kUsual{.threads = 128, .outputs = 64, .tokens = 64};
  constexpr ProductTile kLarge{.threads = 256, .outputs = 128, .tokens = 128};
  if (!is_cooperative) return outputs <= kFewOutputs ? kSmall : kUsual;
  const std::uint64_t tiles = div_up(outputs, kLarge.outputs) * div_up(rows, kLarge.tokens);
  return tiles >= kManyTiles ? kLarge : kUsual;
}

ProductTile expert_tile(bool is_cooperative) {
  if (!is_cooperative) return {.threads = 128, .outputs = 64, .tokens = 64};
  return {.threads = 128, .outputs = 128, .tokens = 32};
}

std::vector<std::uint32_t> product_constants(const WeightRows& weights, const ProductTile& tile) {
  std::vector<std::uint32_t> constants = row_constants(weights, tile.threads);
  constants.insert(constants.end(), {tile.tokens, tile.outputs});
  return constants;
}

std::vector<std::uint16_t> weight_tables() {
  std::vector<std::uint16_t> tables(MOE_GRID_ENTRIES);
  copy_grid(kIq2XxsGrid, MOE_GRID_IQ2_XXS, tables);
  copy_grid(kIq2XsGrid, MOE_GRID_IQ2_XS, tables);
  copy_grid(kIq2SGrid, MOE_GRID_IQ2_S, tables);
  copy_grid(kIq3XxsGrid, MOE_GRID_IQ3_XXS, tables);
  copy_grid(kIq3SGrid, MOE_GRID_IQ3_S, tables);
  copy_grid(kIq1Grid, MOE_GRID_IQ1, tables);
  return tables;
}

}  // namespace moepack
