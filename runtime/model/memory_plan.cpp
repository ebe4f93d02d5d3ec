#include "runtime/model/memory_plan.h"

#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/model/model_state.h"
#include "runtime/store/record_cache.h"

namespace moepack {
namespace {

// Part of the available memory that the automatic cache leaves to everything else.
constexpr std::uint64_t kReserveDivisor = 8;

std::uint64_t activation_floats(const ModelConfig& c) {
  const std::uint64_t attention = 3ULL * c.num_heads * c.head_dim;
  const std::uint64_t delta =
      2 * conv_channels(c) + 2ULL * c.linear_value_heads * c.linear_value_dim;
  const std::uint64_t experts =
      std::uint64_t{c.experts_per_token} * 2 * (std::uint64_t{c.hidden_size} + c.expert_width);
  const std::uint64_t shared = 2ULL * c.shared_expert_width + c.hidden_size;
  return 3ULL * c.hidden_size + attention + delta + experts + shared + c.num_experts;
}

std::uint64_t floor_bytes(const ModelConfig& config, const PackManifest& pack) {
  std::uint64_t floor = 0;
  for (std::uint32_t layer = 0; layer < pack.num_layers; ++layer) {
    std::vector<std::uint64_t> sizes;
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      sizes.push_back(record_memory_bytes(pack.layout_of(layer, e).record_bytes));
    }
    std::sort(sizes.rbegin(), sizes.rend());
    for (std::uint32_t k = 0; k < config.experts_per_token; ++k) floor += sizes[k];
  }
  return floor;
}

}  // namespace

std::uint64_t activation_bytes(const ModelConfig& config) {
  return activation_floats(config) * sizeof(float);
}

Result<MemoryPlan> plan_memory(const ModelConfig& config, std::uint64_t resident_bytes,
                               const PackManifest& pack, const MemoryRequest& request) {
  MemoryPlan plan;
  plan.resident_bytes = resident_bytes;
  const StateBytes state = state_bytes(config, request.context);
  plan.key_value_bytes = state.key_value;
  plan.recurrent_bytes = state.recurrent;
  plan.scratch_bytes = request.chunk_tokens * activation_bytes(config);
  plan.cache_floor_bytes = floor_bytes(config, pack);
  for (std::uint32_t layer = 0; layer < pack.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      plan.pack_bytes += record_memory_bytes(pack.layout_of(layer, e).record_bytes);
    }
  }
  if (request.cache_bytes != 0) {
    plan.cache_bytes = std::min(request.cache_bytes, plan.pack_bytes);
  } else if (request.available_bytes == 0) {
    plan.cache_bytes = plan.pack_bytes;
  } else {
    const std::uint64_t reserve = plan.total_bytes() + request.available_bytes / kReserveDivisor;
    const std::uint64_t left =
        request.available_bytes > reserve ? request.available_bytes - reserve : 0;
    plan.cache_bytes = std::min(plan.pack_bytes, std::max(left, plan.cache_floor_bytes));
  }
  if (plan.cache_bytes < plan.cache_floor_bytes) {
    const std::uint64_t mib = std::uint64_t{1} << 20;
    return invalid_argument(
        "the expert cache of " + std::to_string(plan.cache_bytes) +
            " bytes is below the experts that one token uses, " +
            std::to_string(plan.cache_floor_bytes) + " bytes",
        "give --cache-mb " + std::to_string((plan.cache_floor_bytes + mib - 1) / mib) + " or more");
  }
  return plan;
}

std::uint64_t available_memory_bytes() {
  std::ifstream info("/proc/meminfo");
  std::string word;
  while (info >> word) {
    if (word == "MemAvailable:") {
      std::uint64_t kib = 0;
      info >> kib;
      return kib * 1024;
    }
  }
#ifdef _SC_AVPHYS_PAGES
  const long pages = ::sysconf(_SC_AVPHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  }
#endif
  return 0;
}

}  // namespace moepack
