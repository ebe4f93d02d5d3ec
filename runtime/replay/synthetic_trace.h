// Routing that nobody ran: traces with a given skew and locality, for caches and plans of models
// that are not there.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "formats/base/status.h"
#include "runtime/replay/trace_source.h"

namespace moepack {

// Each token chooses K experts of each layer one after the other, each once. A choice is, with the
// probability `locality`, one of the experts that the layer's last token chose; otherwise the
// expert of rank r in the layer's order of popularity with a probability proportional to
// r^-zipf (r from 1). Every layer has an order of its own. `drift` of a layer's experts change
// their place in it every 1000 tokens.
struct SyntheticTrace {
  std::uint32_t layers = 40;
  std::uint32_t experts = 256;
  std::uint32_t experts_per_token = 8;
  std::uint64_t record_bytes = 1769472;
  std::uint64_t tokens = 2000;  // each a pass of its own
  double zipf = 1.15;           // 0: all alike
  double locality = 0;
  double drift = 0;
  std::uint64_t seed = 1;
};

// "PRESET", "KEY=VALUE,…" or "PRESET,KEY=VALUE,…": docs/cli.md has the presets; the keys are
// layers, experts, k, record-kib, tokens, zipf, locality, drift and seed. kInvalidArgument names
// what is not understood.
Result<SyntheticTrace> parse_synthetic_trace(std::string_view text);

// The same passes for the same numbers. Times are 0.
std::unique_ptr<TraceSource> make_synthetic_trace(const SyntheticTrace& spec);

}  // namespace moepack
