#include "runtime/vulkan/lane_join.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "formats/base/elapsed.h"
#include "runtime/vulkan/path_steps.h"
#include "shaders/combine_args.h"
#include "shaders/copy_words_args.h"

namespace moepack {
namespace {

double lane_seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Result<std::unique_ptr<LaneJoin>> LaneJoin::create(VulkanDevice& device, std::uint32_t hidden_size,
                                                   std::unique_ptr<ColdLane> cold) {
  auto join = std::make_unique<LaneJoin>();
  join->cold_ = std::move(cold);
  join->hidden_size_ = hidden_size;
  const std::uint64_t bytes = std::uint64_t{kFewRows} * hidden_size * sizeof(float);
  MOE_ASSIGN_OR_RETURN(join->hidden_, device.allocate(bytes, MemoryKind::kReadback));
  MOE_ASSIGN_OR_RETURN(join->sums_, device.allocate(bytes, MemoryKind::kUpload));
  const std::vector<shader::Choice> once(kFewRows, shader::Choice{.expert = 0, .weight = 1});
  MOE_ASSIGN_OR_RETURN(join->choices_,
                       device.allocate(once.size() * sizeof(shader::Choice), MemoryKind::kUpload));
  std::memcpy(join->choices_.mapped(), once.data(), once.size() * sizeof(shader::Choice));
  return join;
}

void LaneJoin::record_hidden(const PathParts& p, CommandList& list, const BatchShape& shape) const {
  constexpr std::uint32_t kThreads = 256;
  constexpr std::uint32_t kMostGroups = 512;
  const std::uint32_t words = count32(shape.rows * hidden_size_);
  list.dispatch(
      p.kernels.get("copy_words", {kThreads}),
      shader::CopyWordsArgs{.from = p.scratch.hidden, .to = hidden_.address(), .count = words},
      {std::min(groups_of(words, kThreads), kMostGroups), 1, 1});
}

void LaneJoin::record_join(const PathParts& p, CommandList& list, const BatchShape& shape,
                           std::uint32_t layer) const {
  constexpr std::uint32_t kThreads = 256;
  if (!p.weights.layers[layer].moe.is_plain_sum) {
    record_join_network(p, list, shape, layer, p.experts.layer(layer).table, sums_.address());
    list.barrier();
    return;
  }
  list.dispatch(p.kernels.get("combine", {kThreads}),
                shader::CombineArgs{.records = 0,
                                    .choices = choices_.address(),
                                    .results = sums_.address(),
                                    .y = p.scratch.hidden,
                                    .experts = 1,
                                    .slots = 1,
                                    .cols = count32(hidden_size_),
                                    .y_stride = count32(hidden_size_)},
                {groups_of(hidden_size_, kThreads), shape.rows, 1});
  list.barrier();
}

void LaneJoin::divide(std::span<const shader::Choice> choices, std::size_t slots,
                      std::span<const std::uint8_t> is_live, std::uint32_t layer,
                      const DeviceExperts& experts, std::uint32_t num_experts) {
  cold_uses_.clear();
  has_hot_ = false;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const shader::Choice& choice = choices[i];
    if (is_live[i / slots] == 0 || choice.expert > num_experts) continue;
    const bool is_shared = choice.expert == num_experts;
    if (is_shared || experts.is_kept(layer, choice.expert)) {
      has_hot_ = true;
      if (!is_shared) ++times_.hits;
      continue;
    }
    ++times_.misses;
    cold_uses_.push_back({.expert = choice.expert,
                          .token = count32(i / slots),
                          .slot = count32(i % slots),
                          .weight = choice.weight});
  }
  ++(cold_uses_.empty() ? times_.hot_layers : times_.joined_layers);
  if (counter_ != nullptr) count_uses(choices, slots, is_live, layer, experts, num_experts);
}

void LaneJoin::count_uses(std::span<const shader::Choice> choices, std::size_t slots,
                          std::span<const std::uint8_t> is_live, std::uint32_t layer,
                          const DeviceExperts& experts, std::uint32_t num_experts) {
  bool has_routed_hot = false;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::uint32_t expert = choices[i].expert;
    if (is_live[i / slots] == 0 || expert >= num_experts) continue;
    const bool is_hot = experts.is_kept(layer, expert);
    has_routed_hot = has_routed_hot || is_hot;
    counter_->note_use(layer, expert, is_hot);
  }
  counter_->note_call(layer);
  if (cold_uses_.empty()) {
    counter_->note_fallback(LaneFallback::kNoColdChosen);
  } else if (!has_routed_hot) {
    counter_->note_fallback(LaneFallback::kNoHotChosen);
  }
}

Status LaneJoin::compute_cold(std::uint32_t layer, std::size_t rows, ExpertStore& store) {
  const auto* hidden = reinterpret_cast<const float*>(hidden_.mapped());
  MOE_ASSIGN_OR_RETURN(const std::span<const float> sums,
                       cold_->compute(layer, cold_uses_, hidden, rows, store));
  std::memcpy(sums_.mapped(), sums.data(), sums.size_bytes());
  return Status::ok();
}

Status LaneJoin::run(VulkanDevice& device, CommandList* hot, std::uint32_t layer, std::size_t rows,
                     ExpertStore& store) {
  const Clock::time_point begin = Clock::now();
  if (hot != nullptr) MOE_RETURN_IF_ERROR(device.submit(*hot));
  const Status computed = compute_cold(layer, rows, store);
  const Clock::time_point cold_end = Clock::now();
  if (hot != nullptr) MOE_RETURN_IF_ERROR(device.wait());
  const Clock::time_point end = Clock::now();
  times_.cold_seconds += lane_seconds(begin, cold_end);
  times_.join_wait_seconds += lane_seconds(cold_end, end);
  times_.both_seconds += lane_seconds(begin, end);
  double hot_seconds = 0;
  if (hot != nullptr) {
    const std::vector<double> spans = hot->span_seconds();
    for (const double seconds : spans) hot_seconds += seconds;
    // A device without a clock: the host saw it no sooner.
    if (spans.empty()) hot_seconds = lane_seconds(begin, end);
  }
  times_.hot_seconds += hot_seconds;
  if (counter_ != nullptr) {
    counter_->note_times(layer, {.hot = hot_seconds * 1e6,
                                 .cold = lane_seconds(begin, cold_end) * 1e6,
                                 .join_wait = lane_seconds(cold_end, end) * 1e6,
                                 .total = lane_seconds(begin, end) * 1e6});
  }
  return computed;
}

}  // namespace moepack
