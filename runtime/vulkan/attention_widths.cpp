#include "runtime/vulkan/attention_widths.h"

#include <algorithm>

namespace moepack {

std::vector<HeadSizes> attention_heads(const ModelConfig& config) {
  std::vector<HeadSizes> kinds = config.head_kinds();
  if (kinds.empty()) kinds.push_back(config.heads_of({}));
  return kinds;
}

AttentionWidths attention_widths(const ModelConfig& config) {
  if (config.kv_rank != 0) {
    return {.queries = std::uint64_t{config.num_heads} * config.head_dim,
            .heads = config.num_heads,
            .head_dim = config.head_dim};
  }
  AttentionWidths widths;
  for (const HeadSizes& heads : attention_heads(config)) {
    widths.queries = std::max(widths.queries, std::uint64_t{heads.heads} * heads.head_dim);
    widths.keys = std::max(widths.keys, std::uint64_t{heads.kv_heads} * heads.head_dim);
    widths.heads = std::max<std::uint64_t>(widths.heads, heads.heads);
    widths.head_dim = std::max<std::uint64_t>(widths.head_dim, heads.head_dim);
  }
  return widths;
}

}  // namespace moepack
