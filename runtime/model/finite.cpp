#include "runtime/model/finite.h"

#include <atomic>
#include <bit>
#include <string>

#include "formats/base/remedies.h"

namespace moepack {
namespace {

Status not_finite(const std::string& where, std::uint64_t token) {
  return corrupt(Where{},
                 where + ", token " + std::to_string(token) + ": an activation is not finite",
                 kNotFiniteRemedy);
}

}  // namespace

// On the bits, because compilers can compare integers many at a time.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  std::uint32_t bad = 0;
  for (const float value : values) {
    bad |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
  }
  return bad == 0;
}

bool all_finite(ThreadPool& pool, std::span<const float> values, std::size_t per_task) {
  std::atomic<bool> is_finite{true};
  pool.parallel_for(values.size(), per_task, [&](std::size_t begin, std::size_t end, std::size_t) {
    if (all_finite(values.subspan(begin, end - begin))) return;
    is_finite.store(false, std::memory_order_relaxed);
  });
  return is_finite;
}

Status check_finite(std::uint32_t layer, std::uint64_t first_token, std::size_t rows,
                    std::span<const float> inputs, std::span<const float> logits) {
  if (all_finite(inputs) && all_finite(logits)) return Status::ok();
  const std::size_t width = inputs.size() / rows;
  const std::size_t choices = logits.size() / rows;
  std::size_t t = 0;
  while (t + 1 < rows && all_finite(inputs.subspan(t * width, width)) &&
         all_finite(logits.subspan(t * choices, choices))) {
    ++t;
  }
  return not_finite("layer " + std::to_string(layer), first_token + t);
}

Status check_logits_finite(std::uint64_t token, std::span<const float> logits) {
  return all_finite(logits) ? Status::ok() : not_finite("behind the last layer", token);
}

}  // namespace moepack
