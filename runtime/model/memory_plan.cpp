#include "runtime/model/memory_plan.h"

#include <algorithm>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/limits.h"
#include "runtime/model/activations.h"
#include "runtime/model/byte_counts.h"
#include "runtime/model/chunk_choice.h"
#include "runtime/model/layer_state.h"
#include "runtime/model/memory_remedy.h"
#include "runtime/model/model_weights.h"
#include "runtime/store/record_cache.h"
#include "runtime/store/record_memory.h"

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
    for (std::uint32_t e = 0; e < pack.experts_of(layer); ++e) {
      sizes.push_back(record_bytes(pack, layer, e));
    }
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    for (std::uint32_t k = 0; k < config.experts_per_token && k < sizes.size(); ++k)
      floor += sizes[k];
  }
  return floor;
}

std::uint64_t all_record_bytes(const PackManifest& pack) {
  std::uint64_t bytes = 0;
  for (std::uint32_t layer = 0; layer < pack.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < pack.experts_of(layer); ++e)
      bytes += record_bytes(pack, layer, e);
  }
  return bytes;
}

// Floats of biases, corrections, scales and sinks of a layer, and of norms that few families have.
std::uint64_t bias_floats(const ModelConfig& c, const LayerSpec& spec) {
  std::uint64_t floats = 0;
  if (const auto* full = std::get_if<FullAttentionSpec>(&spec.mixer)) {
    const HeadSizes sizes = c.heads_of(*full);
    const std::uint64_t heads = std::uint64_t{sizes.heads} + 2ULL * sizes.kv_heads;
    if (full->has_bias) floats += heads * sizes.head_dim;
    if (full->has_output_bias) floats += c.hidden_size;
    if (full->has_sinks) floats += sizes.heads;
  }
  if (spec.has_output_norms) floats += 2ULL * c.hidden_size;
  if (spec.has_output_scale) floats += 1;
  const auto* experts = std::get_if<ExpertsSpec>(&spec.feed_forward);
  if (experts == nullptr) return floats;
  const auto* softmax = std::get_if<SoftmaxRouterSpec>(&spec.router);
  if (softmax == nullptr || softmax->has_bias) floats += c.num_experts;
  if (softmax != nullptr && softmax->has_norm) floats += c.hidden_size;
  if (softmax != nullptr && softmax->has_expert_scales) floats += c.num_experts;
  if (experts->has_branch_norms) floats += 3ULL * c.hidden_size;
  if (!experts->has_biases) return floats;
  const std::uint64_t of_expert = 2ULL * c.expert_width + c.hidden_size;
  return capped_sum(floats, capped_product(c.num_experts, of_expert));
}

// Norms, convolutions and the like, which are decoded when they are loaded, and what binds them.
std::uint64_t decoded_bytes(const ModelConfig& c) {
  std::uint64_t attention = 0;
  for (const HeadSizes& sizes : c.head_kinds()) {
    const std::uint64_t heads = (std::uint64_t{sizes.heads} + sizes.kv_heads) * sizes.head_dim;
    attention = std::max({attention, heads, std::uint64_t{2} * sizes.head_dim});
  }
  const std::uint64_t delta = capped_sum(capped_product(c.linear_conv_taps, conv_channels(c)),
                                         2ULL * c.linear_value_heads + c.linear_value_dim);
  std::uint64_t floats = c.hidden_size;
  for (const LayerSpec& spec : c.layers) {
    floats = capped_sum(floats, 2ULL * c.hidden_size);
    floats = capped_sum(floats, bias_floats(c, spec));
    switch (layer_type(spec)) {
      case LayerType::kFullAttention:
        floats = capped_sum(floats, attention);
        break;
      case LayerType::kLinearAttention:
        floats = capped_sum(floats, delta);
        break;
      case LayerType::kLatentAttention:
        floats = capped_sum(floats, std::uint64_t{c.query_rank} + c.kv_rank);
        break;
    }
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

Status check_context(const MemoryRequest& request) {
  if (request.context <= kMaxSequenceTokens) return Status::ok();
  return invalid_argument("a context of " + std::to_string(request.context) +
                              " tokens is more than positions in float32 can tell apart",
                          "give -c " + std::to_string(kMaxSequenceTokens) + " or less");
}

std::uint64_t chosen_cache(const MemoryPlan& plan, const MemoryRequest& request) {
  if (request.cache_bytes != 0) return std::min(request.cache_bytes, plan.pack_bytes);
  if (!request.available_bytes.has_value()) return plan.pack_bytes;
  const std::uint64_t available = *request.available_bytes;
  const std::uint64_t reserve = plan.fixed_bytes() + available / kReserveDivisor;
  const std::uint64_t left = available > reserve ? available - reserve : 0;
  return std::min(plan.pack_bytes, std::max(left, plan.cache_floor_bytes));
}

// `plan` with everything that depends on the request.
MemoryPlan plan_of_request(const ModelConfig& config, MemoryPlan plan,
                           const MemoryRequest& request) {
  const StateBytes state = state_bytes(config, request.context, request.form);
  plan.key_value_bytes = capped_product(state.key_value, request.sequences);
  plan.recurrent_bytes = capped_product(state.recurrent, request.sequences);
  // With the ids of its tokens, in the file and as a list.
  if (request.saves_sequence) {
    plan.saved_bytes = capped_sum(capped_sum(state.key_value, state.recurrent),
                                  capped_product(request.context, 2 * sizeof(std::int32_t)));
  }
  plan.saved_bytes = capped_sum(plan.saved_bytes, request.snapshot_bytes);
  plan.chunk_tokens = request.chunk_tokens;
  plan.scratch_bytes = activation_bytes(config, {.tokens = batch_tokens(request),
                                                 .threads = request.threads,
                                                 .context = request.context,
                                                 .activations = request.activations});
  if (request.on_device) {
    plan.key_value_bytes = plan.recurrent_bytes = 0;
    plan.scratch_bytes = kLogitRows * std::uint64_t{config.vocab_size} * sizeof(float);
  }
  plan.cache_bytes = chosen_cache(plan, request);
  plan.list_bytes = capped_sum(plan.list_bytes, record_memory_overhead(plan.cache_bytes));
  return plan;
}

// What depends on the model alone.
MemoryPlan plan_of_model(const ModelConfig& config, std::uint64_t resident_bytes,
                         const PackManifest& pack, const MemoryRequest& request) {
  MemoryPlan plan;
  plan.resident_bytes = capped_sum(resident_bytes, decoded_bytes(config));
  plan.list_bytes = capped_sum(list_bytes(pack), request.batch_bytes);
  plan.cache_floor_bytes = floor_bytes(config, pack);
  plan.pack_bytes = all_record_bytes(pack);
  return plan;
}

std::string what_is_wrong(const MemoryPlan& plan, const MemoryRequest& request) {
  if (plan.cache_bytes < plan.cache_floor_bytes) {
    return "the expert cache of " + std::to_string(plan.cache_bytes) +
           " bytes is below the experts that one token uses, " +
           std::to_string(plan.cache_floor_bytes) + " bytes";
  }
  const std::uint64_t available = request.available_bytes.value_or(kTooManyBytes - 1);
  return "the run takes " + std::to_string(plan.total_bytes()) + " bytes of memory (residents " +
         std::to_string(plan.resident_bytes) + ", keys and values " +
         std::to_string(plan.key_value_bytes) + ", recurrent states " +
         std::to_string(plan.recurrent_bytes) + ", scratch " + std::to_string(plan.scratch_bytes) +
         ", saved states " + std::to_string(plan.saved_bytes) + ", lists " +
         std::to_string(plan.list_bytes) + ", experts " + std::to_string(plan.cache_bytes) + "), " +
         std::to_string(available) + " are available";
}

}  // namespace

std::uint64_t batch_tokens(const MemoryRequest& request) {
  return std::min(request.chunk_tokens, capped_product(request.sequences, request.context));
}

Result<MemoryPlan> plan_memory(const ModelConfig& config, std::uint64_t resident_bytes,
                               const PackManifest& pack, const MemoryRequest& request) {
  MemoryJudgement judgement = judge_memory(config, resident_bytes, pack, request);
  MOE_RETURN_IF_ERROR(judgement.verdict);
  return judgement.plan;
}

MemoryJudgement judge_memory(const ModelConfig& config, std::uint64_t resident_bytes,
                             const PackManifest& pack, const MemoryRequest& request) {
  MemoryJudgement judgement{.plan = {}, .verdict = check_context(request)};
  if (!judgement.verdict.is_ok()) return judgement;
  const MemoryPlan of_model = plan_of_model(config, resident_bytes, pack, request);
  const PlanOf plan_of = [&](const MemoryRequest& r) {
    return plan_of_request(config, of_model, r);
  };
  MemoryRequest decided = request;
  if (decided.chunk_tokens == 0) decided.chunk_tokens = automatic_chunk(request, plan_of);
  judgement.plan = plan_of(decided);
  if (!fits_memory(judgement.plan, decided)) {
    judgement.verdict =
        invalid_argument(what_is_wrong(judgement.plan, decided), memory_remedy(decided, plan_of));
  }
  return judgement;
}

std::string larger_cache_remedy(const ModelConfig& config, std::uint64_t resident_bytes,
                                const PackManifest& pack, const MemoryRequest& request,
                                std::uint64_t cache_bytes) {
  const MemoryPlan of_model = plan_of_model(config, resident_bytes, pack, request);
  const PlanOf plan_of = [&](const MemoryRequest& r) {
    MemoryPlan plan = plan_of_request(config, of_model, r);
    plan.cache_bytes = plan.cache_floor_bytes = std::min(cache_bytes, plan.pack_bytes);
    return plan;
  };
  MemoryRequest decided = request;
  decided.cache_bytes = 0;
  if (decided.chunk_tokens == 0) decided.chunk_tokens = automatic_chunk(decided, plan_of);
  return smaller_request_remedy(decided, plan_of);
}

}  // namespace moepack
