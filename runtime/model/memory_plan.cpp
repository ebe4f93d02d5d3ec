#include "runtime/model/memory_plan.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "runtime/model/activations.h"
#include "runtime/model/byte_counts.h"
#include "runtime/model/layer_state.h"
#include "runtime/model/model_weights.h"
#include "runtime/store/record_cache.h"

namespace moepack {
namespace {

// Part of the available memory that the automatic cache leaves to everything else.
constexpr std::uint64_t kReserveDivisor = 8;
// What engine and store note down besides: names, places, checksums, entries of the cache.
constexpr std::uint64_t kListBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kListBytesPerLayer = std::uint64_t{8} << 10;
constexpr std::uint64_t kListBytesPerExpert = 768;

std::uint64_t record_bytes(const PackManifest& pack, std::uint32_t layer, std::uint32_t expert) {
  return record_memory_bytes(pack.layout_of(layer, expert).record_bytes);
}

std::uint64_t floor_bytes(const ModelConfig& config, const PackManifest& pack) {
  std::uint64_t floor = 0;
  for (std::uint32_t layer = 0; layer < pack.num_layers; ++layer) {
    std::vector<std::uint64_t> sizes;
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      sizes.push_back(record_bytes(pack, layer, e));
    }
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    for (std::uint32_t k = 0; k < config.experts_per_token; ++k) floor += sizes[k];
  }
  return floor;
}

std::uint64_t all_record_bytes(const PackManifest& pack) {
  std::uint64_t bytes = 0;
  for (std::uint32_t layer = 0; layer < pack.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) bytes += record_bytes(pack, layer, e);
  }
  return bytes;
}

// Norms, convolutions and the like, which are decoded when they are loaded, and what binds them.
std::uint64_t decoded_bytes(const ModelConfig& c) {
  const std::uint64_t heads = (std::uint64_t{c.num_heads} + c.num_kv_heads) * c.head_dim;
  const std::uint64_t attention = std::max<std::uint64_t>(heads, 2ULL * c.head_dim);
  const std::uint64_t delta = capped_sum(capped_product(c.linear_conv_taps, conv_channels(c)),
                                         2ULL * c.linear_value_heads + c.linear_value_dim);
  std::uint64_t floats = c.hidden_size;
  for (const LayerSpec& spec : c.layers) {
    floats = capped_sum(floats, 2ULL * c.hidden_size);
    floats = capped_sum(floats, layer_type(spec) == LayerType::kFullAttention ? attention : delta);
  }
  // The list of layers may hold three times its size while it grows.
  const std::uint64_t bound = capped_product(c.num_layers, 3 * sizeof(LayerWeights));
  return capped_sum(capped_product(floats, sizeof(float)), bound);
}

std::uint64_t list_bytes(const PackManifest& pack) {
  const std::uint64_t experts = std::uint64_t{pack.num_layers} * pack.num_experts;
  return kListBytes + pack.num_layers * kListBytesPerLayer + experts * kListBytesPerExpert +
         pack.layouts.size() * sizeof(ExpertLayout) + pack.report_json.size();
}

std::uint64_t mebibytes_up(std::uint64_t bytes) { return div_up(bytes, std::uint64_t{1} << 20); }

Status check_context(const MemoryRequest& request) {
  if (request.context <= kMaxContext) return Status::ok();
  return invalid_argument("a context of " + std::to_string(request.context) +
                              " tokens is more than positions in float32 can tell apart",
                          "give -c " + std::to_string(kMaxContext) + " or less");
}

Status check_floor(const MemoryPlan& plan) {
  if (plan.cache_bytes >= plan.cache_floor_bytes) return Status::ok();
  return invalid_argument(
      "the expert cache of " + std::to_string(plan.cache_bytes) +
          " bytes is below the experts that one token uses, " +
          std::to_string(plan.cache_floor_bytes) + " bytes",
      "give --cache-mb " + std::to_string(mebibytes_up(plan.cache_floor_bytes)) + " or more");
}

// What a user can change so that a plan fits `available` bytes.
std::string fitting_remedy(const MemoryPlan& plan, const MemoryRequest& request,
                           std::uint64_t available) {
  const std::uint64_t least =
      plan.resident_bytes + plan.recurrent_bytes + plan.list_bytes + plan.cache_floor_bytes;
  if (least > available) {
    return "this model's residents and the experts of one token alone take " +
           std::to_string(least) + " bytes: free memory, or raise the limit of the control group";
  }
  if (request.cache_bytes != 0 && plan.fixed_bytes() + plan.cache_floor_bytes <= available) {
    const std::uint64_t most = (available - plan.fixed_bytes()) >> 20;
    return "give --cache-mb " +
           std::to_string(std::max(most, mebibytes_up(plan.cache_floor_bytes))) + " or less";
  }
  return "give a smaller -c (now " + std::to_string(request.context) + ") or --chunk (now " +
         std::to_string(request.chunk_tokens) + ")" +
         (request.cache_bytes != 0 ? ", or a smaller --cache-mb" : "");
}

Status check_fits(const MemoryPlan& plan, const MemoryRequest& request) {
  const std::uint64_t available = request.available_bytes.value_or(kTooManyBytes - 1);
  if (plan.total_bytes() <= available) return Status::ok();
  return invalid_argument("the run takes " + std::to_string(plan.total_bytes()) +
                              " bytes of memory (residents " + std::to_string(plan.resident_bytes) +
                              ", keys and values " + std::to_string(plan.key_value_bytes) +
                              ", recurrent states " + std::to_string(plan.recurrent_bytes) +
                              ", scratch " + std::to_string(plan.scratch_bytes) + ", experts " +
                              std::to_string(plan.cache_bytes) + "), " + std::to_string(available) +
                              " are available",
                          fitting_remedy(plan, request, available));
}

std::uint64_t chosen_cache(const MemoryPlan& plan, const MemoryRequest& request) {
  if (request.cache_bytes != 0) return std::min(request.cache_bytes, plan.pack_bytes);
  if (!request.available_bytes.has_value()) return plan.pack_bytes;
  const std::uint64_t available = *request.available_bytes;
  const std::uint64_t reserve = plan.fixed_bytes() + available / kReserveDivisor;
  const std::uint64_t left = available > reserve ? available - reserve : 0;
  return std::min(plan.pack_bytes, std::max(left, plan.cache_floor_bytes));
}

}  // namespace

Result<MemoryPlan> plan_memory(const ModelConfig& config, std::uint64_t resident_bytes,
                               const PackManifest& pack, const MemoryRequest& request) {
  MOE_RETURN_IF_ERROR(check_context(request));
  MemoryPlan plan;
  plan.resident_bytes = capped_sum(resident_bytes, decoded_bytes(config));
  const StateBytes state = state_bytes(config, request.context);
  plan.key_value_bytes = capped_product(state.key_value, request.sequences);
  plan.recurrent_bytes = capped_product(state.recurrent, request.sequences);
  plan.scratch_bytes = activation_bytes(
      config,
      {.tokens = request.chunk_tokens, .threads = request.threads, .context = request.context});
  plan.list_bytes = list_bytes(pack);
  plan.cache_floor_bytes = floor_bytes(config, pack);
  plan.pack_bytes = all_record_bytes(pack);
  plan.cache_bytes = chosen_cache(plan, request);
  MOE_RETURN_IF_ERROR(check_floor(plan));
  MOE_RETURN_IF_ERROR(check_fits(plan, request));
  return plan;
}

}  // namespace moepack
