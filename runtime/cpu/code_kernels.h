// Products in integers with SIMD, for the tables of their instruction set. A family of formats and
// an instruction set make one source file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/weights/qformat.h"
#include "runtime/cpu/code_tuning.h"
#include "runtime/cpu/tile_panels.h"
#include "runtime/model/code_kernels.h"

namespace moepack {

// A product of whole vectors of rows.
struct CodeCall : CodeProduct {
  float* aligned_scratch;  // the product's, from a multiple of 64 bytes on
  CodeTuning tuning;
  bool has_tiles = false;  // level amx: its multiply takes many tokens in tiles
  TileInputs tiles = {};   // of a call whose products are formed in tiles
};

using CodeMultiply = void (*)(const CodeCall& call);

// The product of one format; nullptr where the family has no such format.
#if defined(__x86_64__)
CodeMultiply avx512vnni_basic_codes(const WeightFormat& format);
CodeMultiply avx512dot_basic_codes(const WeightFormat& format);
CodeMultiply avxvnni_basic_codes(const WeightFormat& format);
CodeMultiply avx2_basic_codes(const WeightFormat& format);
CodeMultiply avx512vnni_k_codes(const WeightFormat& format);
CodeMultiply avx512dot_k_codes(const WeightFormat& format);
CodeMultiply avxvnni_k_codes(const WeightFormat& format);
CodeMultiply avx2_k_codes(const WeightFormat& format);
CodeMultiply avx512vnni_small_codes(const WeightFormat& format);
CodeMultiply avx512dot_small_codes(const WeightFormat& format);
CodeMultiply avxvnni_small_codes(const WeightFormat& format);
CodeMultiply avx2_small_codes(const WeightFormat& format);
CodeMultiply avx512vnni_grid_codes(const WeightFormat& format);
CodeMultiply avxvnni_grid_codes(const WeightFormat& format);
CodeMultiply avx2_grid_codes(const WeightFormat& format);
CodeMultiply avx512vnni_codes(const WeightFormat& format);  // of any family
const CodeKernels& avx512vnni_code_kernels();
const CodeKernels& amx_code_kernels();
const CodeKernels& avx512dot_code_kernels();
const CodeKernels& avxvnni_code_kernels();
const CodeKernels& avx2_code_kernels();
#elif defined(__aarch64__)
CodeMultiply neon_basic_codes(const WeightFormat& format);
CodeMultiply neon_k_codes(const WeightFormat& format);
CodeMultiply neon_small_codes(const WeightFormat& format);
CodeMultiply neon_grid_codes(const WeightFormat& format);
const CodeKernels& neon_code_kernels();
#endif

// Columns whose codes are unpacked at a time where several tokens share them: a whole number of
// blocks of every format. A panel holds the codes of kLanes rows, their scales and their biases.
constexpr std::size_t kPanelColumns = 256;
constexpr std::size_t kMostPanelRows = 2 * kCodeRows;  // of the panels that share inputs
constexpr std::size_t kPanelGroups = kPanelColumns / kInputGroup;
constexpr std::size_t kPanelBytes =
    kMostPanelRows * (kPanelColumns + 2 * (kPanelColumns / 16) * sizeof(float));
// Sums of [kPanelTokens, kMostPanelRows] over the columns so far. In the output itself they would
// be whole rows apart, often a multiple of 4 KiB: one set of every cache for all tokens.
constexpr std::size_t kPanelScratchBytes =
    kPanelBytes + kPanelTokens * kMostPanelRows * sizeof(float);

// This thread's tiles while a call is computed: it shapes them, and releases them at its end. Not
// to be copied. Any number of threads, each with its own.
class ShapedTiles {
 public:
  // call: of at most kPanelTokens tokens. parts: of the format (TilePanel).
  ShapedTiles(const CodeCall& call, std::size_t parts);
  ~ShapedTiles();
  ShapedTiles(const ShapedTiles&) = delete;
  ShapedTiles& operator=(const ShapedTiles&) = delete;

  // The call's, at equal distances; first is null where the call does without tiles.
  const TileInputs& inputs() const { return inputs_; }

 private:
  TileInputs inputs_;
};

}  // namespace moepack
