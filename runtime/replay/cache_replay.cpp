#include "runtime/replay/cache_replay.h"

#include <algorithm>
#include <functional>
#include <string>

#include "runtime/store/cache_policy.h"

namespace moepack {
namespace {

std::uint64_t largest_of(const TraceModel& model, std::uint32_t layer) {
  std::uint64_t largest = 1;  // where there are no experts
  for (std::uint32_t e = 0; e < model.num_experts; ++e) {
    largest = std::max(largest, model.bytes_of(layer, e));
  }
  return largest;
}

}  // namespace

std::uint64_t all_record_memory(const TraceModel& model) {
  std::uint64_t bytes = 0;
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < model.num_experts; ++e) {
      bytes += record_memory_bytes(model.bytes_of(layer, e));
    }
  }
  return bytes;
}

std::uint64_t token_record_memory(const TraceModel& model) {
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> sizes(model.num_experts);
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < model.num_experts; ++e) {
      sizes[e] = record_memory_bytes(model.bytes_of(layer, e));
    }
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    for (std::uint32_t k = 0; k < model.experts_per_token; ++k) bytes += sizes[k];
  }
  return bytes;
}

CacheUse& CacheUse::operator+=(const CacheUse& other) {
  hits += other.hits;
  misses += other.misses;
  missed_bytes += other.missed_bytes;
  return *this;
}

double CacheUse::hit_rate() const {
  const auto uses = static_cast<double>(hits + misses);
  return uses > 0 ? static_cast<double>(hits) / uses : 0.0;
}

CacheReplay::CacheReplay(const TraceModel& model, std::uint64_t budget, CachePolicy policy,
                         const KeptRecords& kept)
    : model_(model),
      cache_(budget,
             make_policy(policy, uses_per_token(model.expert_layers(), model.experts_per_token),
                         kept.keys)) {
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    most_.push_back(largest_batch(budget, kept.bytes, 1, largest_of(model, layer)));
  }
}

Result<std::unique_ptr<CacheReplay>> CacheReplay::create(const TraceModel& model,
                                                         std::uint64_t budget, CachePolicy policy,
                                                         const KeptRecords& kept) {
  const std::uint64_t floor = token_record_memory(model);
  if (budget < floor) {
    return invalid_argument("an expert cache of " + std::to_string(budget) +
                                " bytes is below the experts that one token uses, " +
                                std::to_string(floor) + " bytes",
                            "give --cache-mb " + std::to_string((floor >> 20) + 1) + " or more");
  }
  return std::unique_ptr<CacheReplay>(
      new CacheReplay(model, std::min(budget, all_record_memory(model)), policy, kept));
}

// As ExpertStore::start_batch: what is there is pinned before anything is evicted for the rest.
Status CacheReplay::run_batch(std::uint32_t layer, std::span<const TraceUse> uses, CacheUse& use) {
  const auto key_of = [&](const TraceUse& u) {
    return RecordKey{layer} * model_.num_experts + u.expert;
  };
  constexpr RecordCache::Slot kNone = ~RecordCache::Slot{0};
  pinned_.clear();
  for (const TraceUse& u : uses) pinned_.push_back(cache_.pin(key_of(u)).value_or(kNone));
  Status status;
  for (std::size_t i = 0; i < uses.size() && status.is_ok(); ++i) {
    if (pinned_[i] != kNone) {
      ++use.hits;
      continue;
    }
    const std::uint64_t bytes = model_.bytes_of(layer, uses[i].expert);
    const auto slot = cache_.add(key_of(uses[i]), bytes);
    status = slot.status();
    if (!status.is_ok()) break;
    pinned_[i] = slot.value();
    ++use.misses;
    use.missed_bytes += bytes;
  }
  for (const RecordCache::Slot slot : pinned_) {
    if (slot != kNone) cache_.unpin(slot);
  }
  return status;
}

Result<CacheUse> CacheReplay::run(const TraceLayer& layer) {
  CacheUse use;
  const std::size_t most = most_[layer.layer];
  const std::span<const TraceUse> all = layer.uses;
  for (std::size_t first = 0; first < all.size(); first += most) {
    const std::size_t count = std::min(most, all.size() - first);
    MOE_RETURN_IF_ERROR(run_batch(layer.layer, all.subspan(first, count), use));
  }
  return use;
}

}  // namespace moepack
