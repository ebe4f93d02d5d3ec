// What a sequence contributes to a call of Engine::forward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/sequence.h"
#include "runtime/score/logits_sink.h"

namespace moepack {

// Tokens of one sequence, to be run after those it has seen.
struct Slice {
  Sequence* sequence = nullptr;  // of the same engine; named by one slice of a call
  std::span<const std::int32_t> tokens;
  // The logits of every index >= first_logits go to `sink` in order. Without any sink
  // there are none.
  std::size_t first_logits = 0;
  LogitsSink sink;
  // Instead of `sink`: the highest logits of the same indices, among the first `top_of` (>= 1) ids,
  // go to `top`. A device finds them by itself, which saves bringing all logits to the host.
  TopSink top = {};
  std::uint32_t top_of = 0;
};

}  // namespace moepack
