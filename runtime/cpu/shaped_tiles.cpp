#if defined(__x86_64__)

#include <cstdint>

#include "runtime/cpu/code_kernels.h"

namespace moepack {
namespace {

// Tokens from which on tiles were faster (docs/decisions.md, section 88): they are mostly full.
constexpr std::size_t kLeastTileTokens = 32;

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

}  // namespace

ShapedTiles::ShapedTiles(const CodeCall& call, std::size_t parts) {
  if (!call.has_tiles || call.digits != kTileDigits || call.tokens < kLeastTileTokens) return;
  if (!are_equidistant(call.x, call.tokens)) return;
  inputs_ = {call.x[0], distance(call.x[0], call.x[1]) / sizeof(InputBlock)};
  shape_tiles(call.tokens, parts);
}

ShapedTiles::~ShapedTiles() {
  if (inputs_.first != nullptr) release_tiles();
}

}  // namespace moepack

#endif
