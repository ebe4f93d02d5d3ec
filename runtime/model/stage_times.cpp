#include "runtime/model/stage_times.h"

namespace moepack {

std::span<const Stage> all_stages() {
  static constexpr std::array<Stage, kStages> kAll{
      Stage::kEmbed,   Stage::kFullAttention, Stage::kDeltaNet, Stage::kRouter,
      Stage::kExperts, Stage::kExpertWait,    Stage::kHead,     Stage::kOther};
  return kAll;
}

std::string_view stage_name(Stage stage) {
  static constexpr std::array<std::string_view, kStages> kNames{
      "embed", "full_attention", "delta_net", "router", "experts", "expert_wait", "head", "other"};
  return kNames[static_cast<std::size_t>(stage)];
}

double StageSeconds::total() const {
  double sum = 0;
  for (const double s : seconds) sum += s;
  return sum;
}

StageSeconds StageSeconds::since(const StageSeconds& before) const {
  StageSeconds difference = *this;
  for (std::size_t i = 0; i < kStages; ++i) difference.seconds[i] -= before.seconds[i];
  return difference;
}

StageSeconds& StageSeconds::operator+=(const StageSeconds& other) {
  for (std::size_t i = 0; i < kStages; ++i) seconds[i] += other.seconds[i];
  return *this;
}

void StageTimes::start() {
  running_ = true;
  stage_ = Stage::kOther;
  spent_ = {};
  since_ = Clock::now();
}

Stage StageTimes::change(Stage stage) {
  const Clock::time_point now = Clock::now();
  const Stage before = stage_;
  spent_[static_cast<std::size_t>(before)] += now - since_;
  if (timeline_ != nullptr && running_) {
    timeline_->add({.name = stage_name(before), .layer = layer_, .start = since_, .end = now});
  }
  since_ = now;
  stage_ = stage;
  return before;
}

void StageTimes::note_batch(std::size_t tokens, Clock::time_point start) {
  if (timeline_ == nullptr || !running_) return;
  timeline_->add({.track = TimelineTrack::kBatch,
                  .name = "batch",
                  .amount = tokens,
                  .start = start,
                  .end = Clock::now()});
}

void StageTimes::credit(Stage stage, double seconds) {
  if (!running_) return;
  const auto time =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  spent_[static_cast<std::size_t>(stage)] += time;
  spent_[static_cast<std::size_t>(stage_)] -= time;
}

StageSeconds StageTimes::read() {
  enter(stage_);
  StageSeconds all;
  for (std::size_t i = 0; i < kStages; ++i) {
    all.seconds[i] = std::chrono::duration<double>(spent_[i]).count();
  }
  return all;
}

}  // namespace moepack
