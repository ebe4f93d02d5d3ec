// The constants of the programs that read weights (matvec, gate_up, down, embed): the host's side
// of shaders/weights.glsl and of what includes it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "formats/config/layer_spec.h"
#include "formats/weights/qformat.h"
#include "runtime/vulkan/vulkan_device.h"
#include "shaders/matvec_fixed_args.h"

namespace moepack {

// Rows of weights as the programs see them.
struct WeightRows {
  WeightFormat format;
  std::uint64_t cols = 0;
  // Bytes, a power of two up to 16 that divides the addresses of the components and of all their
  // rows; at least 2, for MXFP4 1.
  std::uint32_t alignment = 16;
  std::uint64_t rows = 0;  // of the matrix; 0: many
};

// The alignment of rows of `cols` weights whose components begin at these addresses, or at these
// offsets from multiples of 16. Only codes count.
std::uint32_t row_alignment(const WeightFormat& format, std::uint64_t cols, std::uint64_t codes);

// How the work is cut. Of one matrix, results depend on `lanes` (and the device's subgroup) alone.
struct WeightKernelShape {
  std::uint32_t threads = 256;  // of a work group: a multiple of the device's subgroup
  std::uint32_t lanes = 32;     // that share a row: a power of two
  std::uint32_t rows = 2;       // of each matrix that a team of lanes takes together
  std::uint32_t steps = 1;      // chunks of a row that a lane has in flight
};

// Weights that a lane takes at once: CHUNK of shaders/weights.glsl.
std::uint32_t chunk_weights(QFormatId format);
// Lanes that fit the rows, at most the device's subgroup; the rest as it does well usually.
WeightKernelShape usual_shape(const WeightRows& weights, const VulkanDeviceInfo& device);
// The same for down with groups of `block_rows` rows and all `slots`: a team takes two rows of
// slots in turn, as far as a work group has threads for that. A team for each was slower.
WeightKernelShape usual_down_shape(const WeightRows& weights, const VulkanDeviceInfo& device,
                                   std::uint32_t slots, std::uint32_t block_rows);
// Threads of a product's work groups together, at most: as many as the cores of a large device hold
// at once.
constexpr std::uint32_t kMostProductThreads = 264 * 512;
// Work groups for `rows` rows: as many as take all at once, but not so many that norming the inputs
// in each of them costs as much as the rows; then each group takes its turns.
std::uint32_t groups_for_rows(const WeightKernelShape& shape, std::uint64_t rows,
                              const VulkanDeviceInfo& device);

struct MatvecOptions {
  bool has_norm = false;    // MatvecArgs::factor, eps
  bool adds = false;        // to y
  bool is_indexed = false;  // MatvecArgs::indices
};
// What experts do between their projections, as programs know it.
struct Activation {
  ExpertActivation kind = ExpertActivation::kSwiGlu;
  float limit = 0;
};
// Its specialization constants, which follow each other: the number and the limit.
std::array<std::uint32_t, 2> activation_constants(const Activation& activation);

struct GateUpOptions {
  bool has_norm = false;   // GateUpArgs::factor, eps
  bool is_single = false;  // one matrix, without activation
  bool by_kind = false;    // GateUpArgs::kinds
  Activation activation = {};
  bool adds_bias = false;  // GateUpArgs::bias
  // In a list with counters, behind a router: each work group makes the choice for itself,
  // GateUpArgs::choices is a RouteArgs. Constants of routing, route's from 1 on; empty: the
  // router's stage does it.
  std::vector<std::uint32_t> routing = {};
};
struct DownOptions {
  std::uint32_t slots = 1;  // that a dispatch computes
  std::uint32_t block_rows =
      16;                    // of a work group, a multiple of WeightKernelShape::rows, <= threads
  bool by_kind = false;      // DownArgs::kinds
  bool slots_apart = false;  // single products, for combine
  bool adds_bias = false;    // DownArgs::bias
  // In an ordered list: how many stages back the choices were made, and the activations.
  std::uint32_t chosen_back = 2;
  std::uint32_t activated_back = 1;
};

// Specialization constants 0, 1, 2 … of MatvecArgs', GateUpArgs', DownArgs' and EmbedArgs'
// programs.
std::vector<std::uint32_t> matvec_constants(const WeightRows& weights,
                                            const WeightKernelShape& shape,
                                            const VulkanDeviceInfo& device,
                                            const MatvecOptions& options);
std::vector<std::uint32_t> gate_up_constants(const WeightRows& weights,
                                             const WeightKernelShape& shape,
                                             const VulkanDeviceInfo& device,
                                             const GateUpOptions& options);
std::vector<std::uint32_t> down_constants(const WeightRows& weights, const WeightKernelShape& shape,
                                          const VulkanDeviceInfo& device,
                                          const DownOptions& options);
// Whether the programs with inputs in fixed point (matvec_fixed, router_fixed, gate_up_fixed; of
// `slots` slots down_fixed) compute such products on this device: those of the format's name with
// "_fixed" before it.
bool has_fixed_products(const WeightRows& weights, std::uint32_t slots,
                        const VulkanDeviceInfo& device);
// Weights that a lane of theirs takes at once.
std::uint32_t fixed_chunk_weights(QFormatId format);
// Their shape, with at most so many lanes for a row: fewer where there are many rows, so that what
// a row costs beside its products is shared; more where rows are long or their latency counts.
WeightKernelShape fixed_shape(const WeightRows& weights, const VulkanDeviceInfo& device,
                              std::uint32_t lanes);
using FixedPlaces = std::array<std::uint32_t, MOE_FIXED_MATRICES - 1>;
// Of matvec_fixed for one matrix (`turns` 0) or several, of which a work group takes its next rows
// that often; `epsilon` is the norm's, `y_at` where the results of the others lie, floats behind
// the first's. The other programs take the constants of those with float inputs.
std::vector<std::uint32_t> matvec_fixed_constants(const WeightRows& weights,
                                                  const WeightKernelShape& shape,
                                                  const VulkanDeviceInfo& device,
                                                  const MatvecOptions& options, std::uint32_t turns,
                                                  float epsilon, const FixedPlaces& y_at = {});
// Of latent_absorb and latent_expand: tokens that a work group takes of so many rows, as far as
// shared memory goes, and the constants. The tokens of a work group change no bits.
std::uint32_t latent_tokens(const WeightRows& weights, std::uint64_t rows,
                            const VulkanDeviceInfo& device);
std::vector<std::uint32_t> latent_constants(const WeightRows& weights, std::uint32_t tokens);
// `scale`: what rows are multiplied with.
std::vector<std::uint32_t> embed_constants(const WeightRows& weights, std::uint32_t threads,
                                           float scale = 1);

// How a product of many rows is cut: a work group computes `outputs` rows of a matrix for up to
// `tokens` tokens. In products of gate and up half of the outputs are gate's.
struct ProductTile {
  std::uint32_t threads = 128;
  std::uint32_t outputs = 64;
  std::uint32_t tokens = 64;
};
// is_cooperative: of the form for cooperative matrices. In the plain form the order of sums depends
// on the tile, so the tile depends on the matrix alone; in the other it does not.
ProductTile dense_tile(std::uint64_t outputs, std::uint64_t rows, bool is_cooperative);
// The plain form also takes the tiles of pairs that are cut for the other.
ProductTile expert_tile(bool is_cooperative);
// Specialization constants of MatmulArgs', GateUpMatmulArgs' and ExpertMatmulArgs' programs.
std::vector<std::uint32_t> product_constants(const WeightRows& weights, const ProductTile& tile);

// What the argument `tables` points to, for formats with tables (weight_tables.h of shaders); the
// others never read it.
std::vector<std::uint16_t> weight_tables();

}  // namespace moepack
