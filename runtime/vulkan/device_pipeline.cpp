#include "runtime/vulkan/device_pipeline.h"

#include <algorithm>
#include <utility>

#include "runtime/model/function_ref.h"
namespace moepack {
namespace {

// The states of one sequence on all devices. Saved they are those of one device: layer after layer.
class PipelineState final : public SequenceState {
 public:
  explicit PipelineState(std::vector<std::unique_ptr<SequenceState>> parts)
      : parts_(std::move(parts)) {}

  SequenceState& part(std::size_t stage) const { return *parts_[stage]; }

  void reset() override {
    for (const auto& part : parts_) part->reset();
  }
  Result<std::unique_ptr<SequenceState>> copy(std::uint64_t tokens) const override {
    std::vector<std::unique_ptr<SequenceState>> copies;
    for (const auto& part : parts_) {
      MOE_ASSIGN_OR_RETURN(std::unique_ptr<SequenceState> copied, part->copy(tokens));
      copies.push_back(std::move(copied));
    }
    return std::unique_ptr<SequenceState>(std::make_unique<PipelineState>(std::move(copies)));
  }
  std::uint64_t memory_bytes() const override {
    std::uint64_t bytes = 0;
    for (const auto& part : parts_) bytes += part->memory_bytes();
    return bytes;
  }
  bool has_recurrent() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->has_recurrent(); });
  }
  DeltaForm delta_form() const override { return parts_.front()->delta_form(); }

  std::uint64_t saved_bytes(std::uint64_t tokens) const override {
    std::uint64_t bytes = 0;
    for (const auto& part : parts_) bytes += part->saved_bytes(tokens);
    return bytes;
  }
  Status save(std::uint64_t tokens, std::span<std::byte> bytes) const override {
    for (const auto& part : parts_) {
      const std::uint64_t size = part->saved_bytes(tokens);
      MOE_RETURN_IF_ERROR(part->save(tokens, bytes.first(size)));
      bytes = bytes.subspan(size);
    }
    return Status::ok();
  }
  Status load(std::uint64_t tokens, std::span<const std::byte> bytes) override {
    for (const auto& part : parts_) {
      const std::uint64_t size = part->saved_bytes(tokens);
      MOE_RETURN_IF_ERROR(part->load(tokens, bytes.first(size)));
      bytes = bytes.subspan(size);
    }
    return Status::ok();
  }

  std::uint64_t recurrent_bytes(std::uint64_t tokens) const override {
    std::uint64_t bytes = 0;
    for (const auto& part : parts_) bytes += part->recurrent_bytes(tokens);
    return bytes;
  }
  Status save_recurrent(std::uint64_t tokens, std::span<std::byte> bytes) const override {
    for (const auto& part : parts_) {
      const std::uint64_t size = part->recurrent_bytes(tokens);
      MOE_RETURN_IF_ERROR(part->save_recurrent(tokens, bytes.first(size)));
      bytes = bytes.subspan(size);
    }
    return Status::ok();
  }
  Status load_recurrent(std::uint64_t tokens, std::span<const std::byte> bytes) override {
    for (const auto& part : parts_) {
      const std::uint64_t size = part->recurrent_bytes(tokens);
      MOE_RETURN_IF_ERROR(part->load_recurrent(tokens, bytes.first(size)));
      bytes = bytes.subspan(size);
    }
    return Status::ok();
  }

 private:
  std::vector<std::unique_ptr<SequenceState>> parts_;  // by stage
};

void add_lanes(const LaneTimes& from, LaneTimes& to) {
  to.hot_layers += from.hot_layers;
  to.joined_layers += from.joined_layers;
  to.hits += from.hits;
  to.misses += from.misses;
  to.hot_seconds += from.hot_seconds;
  to.cold_seconds += from.cold_seconds;
  to.both_seconds += from.both_seconds;
  to.join_wait_seconds += from.join_wait_seconds;
}

class DevicePipeline final : public VulkanBackend {
 public:
  DevicePipeline(std::vector<std::unique_ptr<VulkanBackend>> stages, std::vector<LayerRange> ranges,
                 std::shared_ptr<StageTimes> times)
      : stages_(std::move(stages)), ranges_(std::move(ranges)), times_(std::move(times)) {}

  std::string_view name() const override { return stages_.front()->name(); }
  std::size_t max_tokens() const override { return stages_.front()->max_tokens(); }
  std::size_t max_logit_rows() const override { return last().max_logit_rows(); }
  const VulkanDeviceInfo& device() const override { return stages_.front()->device(); }
  StageTimes& stage_times() override { return *times_; }
  Result<double> read_rate() override { return stages_.front()->read_rate(); }
  std::span<const TopLogit> top_logits() const override { return last().top_logits(); }
  Result<RowLogits> logits(std::span<const std::size_t> rows) override {
    return stages_.back()->logits(rows);
  }

  Result<std::unique_ptr<SequenceState>> make_state() override {
    std::vector<std::unique_ptr<SequenceState>> parts;
    for (const auto& stage : stages_) {
      MOE_ASSIGN_OR_RETURN(std::unique_ptr<SequenceState> part, stage->make_state());
      parts.push_back(std::move(part));
    }
    return std::unique_ptr<SequenceState>(std::make_unique<PipelineState>(std::move(parts)));
  }

  Status forward(std::span<const std::int32_t> tokens, std::span<BatchSlice> slices,
                 const WantedRows& wanted, ForwardObserver* observer) override {
    std::vector<BatchSlice> own(slices.begin(), slices.end());
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const bool is_last = i + 1 == stages_.size();
      for (std::size_t s = 0; s < own.size(); ++s) {
        own[s].state = &static_cast<const PipelineState&>(*slices[s].state).part(i);
      }
      if (i > 0) {
        const std::span<const float> hidden = stages_[i - 1]->hidden_out(tokens.size());
        std::copy(hidden.begin(), hidden.end(), stages_[i]->hidden_in(tokens.size()).begin());
      }
      MOE_RETURN_IF_ERROR(
          stages_[i]->forward(tokens, own, is_last ? wanted : WantedRows{}, observer));
    }
    for (std::size_t s = 0; s < own.size(); ++s) slices[s].status = own[s].status;
    return Status::ok();
  }

  ExpertStoreStats expert_stats() const override {
    ExpertStoreStats sum = stages_.front()->expert_stats();
    for (std::size_t i = 1; i < stages_.size(); ++i) sum += stages_[i]->expert_stats();
    return sum;
  }
  void reset_stats() override {
    for (const auto& stage : stages_) stage->reset_stats();
  }
  DeviceReport report() const override {
    DeviceReport sum = stages_.front()->report();
    for (std::size_t i = 1; i < stages_.size(); ++i) {
      const DeviceReport part = stages_[i]->report();
      sum.work.submissions += part.work.submissions;
      sum.work.dispatches += part.work.dispatches;
      sum.work.barriers += part.work.barriers;
      sum.taken_bytes += part.taken_bytes;
      add_lanes(part.lanes, sum.lanes);
      for (const auto& [name, time] : part.kernels) {
        sum.kernels[name].runs += time.runs;
        sum.kernels[name].seconds += time.seconds;
      }
    }
    return sum;
  }

  bool keeps_experts() const override {
    return std::any_of(stages_.begin(), stages_.end(),
                       [](const auto& stage) { return stage->keeps_experts(); });
  }
  std::optional<LaneUse> lane_use() const override {
    return joined_use([](const VulkanBackend& stage) { return stage.lane_use(); });
  }
  std::optional<LaneUse> recent_lane_use() const override {
    return joined_use([](const VulkanBackend& stage) { return stage.recent_lane_use(); });
  }
  void fade_lane_use() override {
    for (const auto& stage : stages_) stage->fade_lane_use();
  }
  void count_lanes(bool is_counting) override {
    for (const auto& stage : stages_) stage->count_lanes(is_counting);
  }
  // Each device exchanges experts of its own layers.
  Result<HotChange> exchange_hot(const SlotScores& scores, double rate) override {
    HotChange sum;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (!stages_[i]->keeps_experts()) continue;
      const SlotScores own(scores.begin() + ranges_[i].first, scores.begin() + ranges_[i].end);
      MOE_ASSIGN_OR_RETURN(const HotChange change, stages_[i]->exchange_hot(own, rate));
      add_change(change, sum);
    }
    return sum;
  }
  std::span<float> hidden_in(std::size_t rows) override { return stages_.front()->hidden_in(rows); }
  std::span<const float> hidden_out(std::size_t rows) const override {
    return last().hidden_out(rows);
  }

 private:
  const VulkanBackend& last() const { return *stages_.back(); }

  // What the stages counted, layer after layer; a stage that holds all its experts counts nothing.
  std::optional<LaneUse> joined_use(
      FunctionRef<std::optional<LaneUse>(const VulkanBackend&)> use_of) const {
    std::vector<std::optional<LaneUse>> parts;
    for (const auto& stage : stages_) parts.push_back(use_of(*stage));
    const auto counted =
        std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part.has_value(); });
    if (counted == parts.end()) return std::nullopt;
    const std::uint32_t experts = (*counted)->shape.num_experts;
    const std::uint32_t per_token = (*counted)->experts_per_token;
    LaneUse all = empty_lane_use({0, experts}, per_token);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      append_layers(parts[i].has_value() ? *parts[i]
                                         : empty_lane_use({ranges_[i].count(), experts}, per_token),
                    all);
    }
    return all;
  }

  std::vector<std::unique_ptr<VulkanBackend>> stages_;
  std::vector<LayerRange> ranges_;  // of the stages
  std::shared_ptr<StageTimes> times_;
};

}  // namespace

std::unique_ptr<VulkanBackend> make_device_pipeline(
    std::vector<std::unique_ptr<VulkanBackend>> stages, std::vector<LayerRange> ranges,
    std::shared_ptr<StageTimes> times) {
  return std::make_unique<DevicePipeline>(std::move(stages), std::move(ranges), std::move(times));
}

}  // namespace moepack
