// How often experts were used lately, for people who look at a model while it answers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/model/activations.h"

namespace moepack {

// A picture of one moment: [layers][experts]. Empty where a backend does not tell.
struct ExpertUsageMap {
  std::uint32_t layers = 0, experts = 0;
  std::vector<std::uint8_t> warmth;       // 0 cold to 255: used by every pass lately
  std::vector<std::uint8_t> is_resident;  // 1: in memory, or on its way there
};

// An expert that a pass uses goes an eighth of the way to the warmest; every kPassesToCool passes
// all lose an eighth of their warmth. One thread adds; any thread reads at any time.
class ExpertUsage {
 public:
  ExpertUsage(std::uint32_t layers, std::uint32_t experts);

  void begin_pass();
  void add(std::uint32_t layer, std::span<const ExpertGroup> used);
  // Without residency.
  ExpertUsageMap read() const;

 private:
  static constexpr std::uint32_t kPassesToCool = 4;

  std::uint32_t layers_, experts_;
  std::uint32_t passes_ = 0;
  std::unique_ptr<std::atomic<std::uint8_t>[]> warmth_;
};

}  // namespace moepack
