// The eviction policies that users can name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "runtime/store/eviction_policy.h"
#include "runtime/store/store_options.h"

namespace moepack {

// kInvalidArgument with the names that are known.
Result<CachePolicy> parse_cache_policy(std::string_view name);
std::string_view cache_policy_name(CachePolicy policy);

// Tokens after which a use counts half with kLfru. From 16 to 64 any is within 2 points
// of hits of the best on synthetic traces with and without drift (docs/decisions.md).
constexpr double kHalfLifeTokens = 32;

// Records that a token uses, over all layers. `layers`: those with experts.
constexpr double uses_per_token(std::uint32_t layers, std::uint32_t experts_per_token) {
  return double{1} * layers * experts_per_token;
}

// `token_uses`: uses_per_token(), >= 1. `kept`: keep_records().
std::unique_ptr<EvictionPolicy> make_policy(CachePolicy policy, double token_uses,
                                            std::span<const RecordKey> kept);

}  // namespace moepack
