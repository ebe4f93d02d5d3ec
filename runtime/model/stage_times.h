// Where the time of forward passes goes, by stage and by kind of layer. A stopwatch that always
// stands on one stage: what is entered ends what was, so the stages add up to the whole time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "formats/base/elapsed.h"
#include "runtime/store/timeline.h"

namespace moepack {

enum class Stage : std::uint8_t {
  kEmbed,
  kFullAttention,  // the mixer of layers with full or latent attention
  kDeltaNet,       // the mixer of GatedDeltaNet layers
  kRouter,         // its logits and its choice
  kExperts,        // routed and shared experts: sorting, computing, adding up
  kExpertWait,     // waiting for their records
  kHead,           // final norm and logits
  kOther,          // norms, sums, and what happens outside of a forward pass
};
constexpr std::size_t kStages = 8;

// All stages, in the order above.
std::span<const Stage> all_stages();
// "embed", "full_attention", "delta_net", "router", "experts", "expert_wait", "head",
// "other".
std::string_view stage_name(Stage stage);

struct StageSeconds {
  std::array<double, kStages> seconds{};  // by Stage

  double of(Stage stage) const { return seconds[static_cast<std::size_t>(stage)]; }
  double total() const;
  // What was added since `before`, an earlier reading.
  StageSeconds since(const StageSeconds& before) const;
  StageSeconds& operator+=(const StageSeconds& other);
};

// Used by the one thread that drives the forward pass, never inside the pool's tasks. Until start()
// it stands still, and entering a stage costs a comparison.
class StageTimes {
 public:
  // Begins at zero, at kOther.
  void start();
  bool is_running() const { return running_; }
  // Counts from now on for `stage`; gives the stage that ended.
  Stage enter(Stage stage) {
    if (!running_) return stage;
    return change(stage);
  }
  // Moves time that was counted for the present stage to `stage`: a device's own clock knows
  // better.
  void credit(Stage stage, double seconds);
  // Until now; zeros before start().
  StageSeconds read();

  // Every stage that ends from now on is noted in `timeline` too, which outlives this object.
  void note_in(Timeline& timeline) { timeline_ = &timeline; }
  // The layer of the stages that end from now on; TimelineEvent::kNone: outside of the layers.
  void at_layer(std::uint32_t layer) {
    if (timeline_ == nullptr) return;
    change(stage_);
    layer_ = layer;
  }
  // A batch of so many tokens, from `start` until now.
  void note_batch(std::size_t tokens, Clock::time_point start);

 private:
  Stage change(Stage stage);

  bool running_ = false;
  Stage stage_ = Stage::kOther;
  Clock::time_point since_;
  Timeline* timeline_ = nullptr;
  std::uint32_t layer_ = TimelineEvent::kNone;
  std::array<Clock::duration, kStages> spent_{};
};

// Enters a stage and goes back at its end.
class StageScope {
 public:
  StageScope(StageTimes& times, Stage stage) : times_(times), before_(times.enter(stage)) {}
  ~StageScope() { times_.enter(before_); }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  StageTimes& times_;
  Stage before_;
};

}  // namespace moepack
