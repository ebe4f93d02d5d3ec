// How the forward pass hands out logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "formats/base/status.h"

namespace moepack {

// Called once per token whose logits were asked for, in order. `index` counts from the start of the
// call's tokens; `logits` is [vocab_size], valid during the call. An error ends the forward pass.
using LogitsSink = std::function<Status(std::size_t index, std::span<const float> logits)>;

// Called once per token whose highest logit was asked for, in order, with its id; of equal ones the
// lowest. An error ends the forward pass.
using TopSink = std::function<Status(std::size_t index, std::int32_t id)>;

// Runs `tokens` from a fresh state and gives the logits of every index >= first to the sink.
using WindowForward = std::function<Status(std::span<const std::int32_t> tokens, std::size_t first,
                                           const LogitsSink& sink)>;

}  // namespace moepack
