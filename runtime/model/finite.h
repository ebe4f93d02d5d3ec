// Whether activations are numbers. NaN and infinity come from damaged weights or overflow; they
// are named at the first layer where they show instead of travelling on to the logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/status.h"
#include "runtime/model/thread_pool.h"

namespace moepack {

// Whether no value is NaN or infinite.
bool all_finite(std::span<const float> values);

// The same, shared among the threads in tasks of so many values (>= 1).
bool all_finite(ThreadPool& pool, std::span<const float> values, std::size_t per_task);

// kCorrupt with layer and token when a row of `inputs` or of `logits` has a value that is not
// finite; `first_token` is the number of row 0 in its sequence or corpus. Both spans hold the same
// number of rows, `rows` (>= 1). From any thread.
Status check_finite(std::uint32_t layer, std::uint64_t first_token, std::size_t rows,
                    std::span<const float> inputs, std::span<const float> logits);

// The same for the logits of one token.
Status check_logits_finite(std::uint64_t token, std::span<const float> logits);

}  // namespace moepack
