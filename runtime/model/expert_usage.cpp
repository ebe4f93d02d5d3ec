#include "runtime/model/expert_usage.h"

namespace moepack {
namespace {

constexpr std::uint8_t kWarmest = 255;

}  // namespace

ExpertUsage::ExpertUsage(std::uint32_t layers, std::uint32_t experts)
    : layers_(layers),
      experts_(experts),
      warmth_(std::make_unique<std::atomic<std::uint8_t>[]>(std::size_t{layers} * experts)) {}

void ExpertUsage::begin_pass() {
  if (++passes_ % kPassesToCool != 0) return;
  for (std::size_t i = 0; i < std::size_t{layers_} * experts_; ++i) {
    const std::uint8_t old = warmth_[i].load(std::memory_order_relaxed);
    warmth_[i].store(static_cast<std::uint8_t>(old - (old + 7) / 8), std::memory_order_relaxed);
  }
}

void ExpertUsage::add(std::uint32_t layer, std::span<const ExpertGroup> used) {
  for (const ExpertGroup& group : used) {
    std::atomic<std::uint8_t>& warmth = warmth_[std::size_t{layer} * experts_ + group.expert];
    const std::uint8_t old = warmth.load(std::memory_order_relaxed);
    const int more = old + (kWarmest - old + 7) / 8;
    warmth.store(static_cast<std::uint8_t>(more), std::memory_order_relaxed);
  }
}

ExpertUsageMap ExpertUsage::read() const {
  ExpertUsageMap map{.layers = layers_, .experts = experts_, .warmth = {}, .is_resident = {}};
  map.warmth.resize(std::size_t{layers_} * experts_);
  for (std::size_t i = 0; i < map.warmth.size(); ++i) {
    map.warmth[i] = warmth_[i].load(std::memory_order_relaxed);
  }
  return map;
}

}  // namespace moepack
