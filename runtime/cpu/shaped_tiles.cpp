#if defined(__x86_64__)

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/code_kernels.h"

namespace moepack {
namespace {

// Fewer are multiplied faster without tiles.
constexpr std::size_t kLeastTileTokens = 5;

// In bytes; tokens need not be of one array.
std::uintptr_t distance(const InputBlock* from, const InputBlock* to) {
  return reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
}

// Whether the tokens' inputs follow each other at one distance.
bool are_equidistant(const InputBlock* const* tokens, std::size_t count) {
  const std::uintptr_t first = distance(tokens[0], tokens[1]);
  for (std::size_t t = 2; t < count; ++t) {
    if (distance(tokens[t - 1], tokens[t]) != first) return false;
  }
  return tokens[0] < tokens[1];
}

TileInputs copy_inputs(const CodeCall& call) {
  const std::size_t blocks = input_blocks(call.w.cols, call.digits);
  const std::size_t stride = tile_scratch_stride(call.w.cols);
  float* const scratch = call.aligned_scratch + kPanelScratchBytes / sizeof(float);
  auto* const copy = reinterpret_cast<InputBlock*>(scratch);
  for (std::size_t t = 0; t < call.tokens; ++t) {
    std::copy_n(call.x[t], blocks, copy + t * stride);
  }
  return {copy, stride};
}

}  // namespace

ShapedTiles::ShapedTiles(const CodeCall& call, std::size_t parts) {
  if (!call.may_use_tiles || call.tokens < kLeastTileTokens) return;
  if (are_equidistant(call.x, call.tokens)) {
    inputs_ = {call.x[0], distance(call.x[0], call.x[1]) / sizeof(InputBlock)};
  } else {
    inputs_ = copy_inputs(call);
  }
  shape_tiles(call.tokens, parts);
}

ShapedTiles::~ShapedTiles() {
  if (inputs_.first != nullptr) release_tiles();
}

}  // namespace moepack

#endif
