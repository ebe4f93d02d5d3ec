#include "runtime/store/cache_policy.h"

#include <utility>

namespace moepack {

Result<CachePolicy> parse_cache_policy(std::string_view name) {
  if (name == "lru") return CachePolicy::kLru;
  if (name == "lfru") return CachePolicy::kLfru;
  return invalid_argument("--cache-policy " + printable(name, 64) + " is not known",
                          "known are lru and lfru");
}

std::string_view cache_policy_name(CachePolicy policy) {
  return policy == CachePolicy::kLru ? "lru" : "lfru";
}

std::unique_ptr<EvictionPolicy> make_policy(CachePolicy policy, double token_uses,
                                            std::span<const RecordKey> kept) {
  std::unique_ptr<EvictionPolicy> chosen =
      policy == CachePolicy::kLru
          ? least_recently_used()
          : least_frequently_and_recently_used(kHalfLifeTokens * token_uses);
  return kept.empty() ? std::move(chosen) : keep_records(std::move(chosen), kept);
}

}  // namespace moepack
