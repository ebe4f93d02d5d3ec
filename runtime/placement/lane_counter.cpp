#include "runtime/placement/lane_counter.h"

#include <algorithm>

namespace moepack {
namespace {

void add_times(const LaneMicroseconds& from, LaneMicroseconds& to) {
  to.hot += from.hot;
  to.cold += from.cold;
  to.join_wait += from.join_wait;
  to.total += from.total;
}

void halve(LayerLanes& layer) {
  layer.calls /= 2;
  for (std::uint64_t& count : layer.hot) count /= 2;
  for (std::uint64_t& count : layer.cold) count /= 2;
  layer.times.hot /= 2;
  layer.times.cold /= 2;
  layer.times.join_wait /= 2;
  layer.times.total /= 2;
}

std::uint64_t most_uses(const LaneUse& use) {
  std::uint64_t most = 0;
  for (const LayerLanes& layer : use.layers) {
    most = std::max(most, layer.hot_uses() + layer.cold_uses());
  }
  return most;
}

}  // namespace

LaneCounter::LaneCounter(const ExpertShape& shape, std::uint32_t experts_per_token)
    : all_(empty_lane_use(shape, experts_per_token)), recent_(all_) {}

void LaneCounter::note_call(std::uint32_t layer) {
  ++all_.layers[layer].calls;
  ++recent_.layers[layer].calls;
}

void LaneCounter::note_use(std::uint32_t layer, std::uint32_t expert, bool is_hot) {
  for (LaneUse* use : {&all_, &recent_}) {
    LayerLanes& lanes = use->layers[layer];
    ++(is_hot ? lanes.hot : lanes.cold)[expert];
  }
}

void LaneCounter::note_times(std::uint32_t layer, const LaneMicroseconds& times) {
  add_times(times, all_.layers[layer].times);
  add_times(times, recent_.layers[layer].times);
}

void LaneCounter::note_fallback(LaneFallback reason) {
  ++all_.fallbacks[static_cast<std::size_t>(reason)];
}

void LaneCounter::fade() {
  const std::uint64_t most = kRecentTokens * std::max(recent_.experts_per_token, 1U);
  while (most_uses(recent_) > most) {
    for (LayerLanes& layer : recent_.layers) halve(layer);
  }
}

}  // namespace moepack
