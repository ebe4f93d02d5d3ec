#include "runtime/vulkan/vulkan_forward.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/model/finite.h"
#include "runtime/vulkan/attention_widths.h"
#include "runtime/vulkan/device_read_rate.h"
#include "runtime/vulkan/few_rows_path.h"
#include "runtime/vulkan/handed_scratch.h"
#include "runtime/vulkan/hot_exchange.h"
#include "runtime/vulkan/lane_join.h"
#include "runtime/vulkan/latent_path.h"
#include "runtime/vulkan/path_steps.h"
#include "runtime/vulkan/pipeline_file.h"
#include "runtime/vulkan/prompt_path.h"
#include "runtime/vulkan/vulkan_state.h"
#include "shaders/argmax_args.h"
#include "shaders/copy_words_args.h"
#include "shaders/group_rows_args.h"
#include "shaders/route_args.h"
#include "shaders/shared_types.h"

namespace moepack {
namespace {

constexpr std::size_t kMostLists = 1024;  // that stay recorded

// Which commands a recorded list holds.
enum class Part : std::uint8_t {
  kWhole,    // a batch from tokens to logits
  kBegin,    // embedding, mixer and router of the first layer
  kExperts,  // of a layer, those that are on the device
  kNext,     // the rest of a layer's experts, then mixer and router of the next
  kEnd,      // the rest of the last layer's experts, then the head
  kHead,     // logits alone
  // Of a layer in two lanes (lane_join.h):
  kHot,      // the device's experts
  kJoin,     // what the processor computed, then mixer and router of the next layer
  kJoinEnd,  // the same of the last layer, then the head
};

struct ListKey {
  Part part = Part::kWhole;
  bool is_prompt = false;
  BatchShape shape;
  std::uint32_t layer = 0;
  std::uint32_t logit_rows = 0;
  std::uint32_t top_of = 0;  // WantedRows::top_of
  bool is_timed = false;

  auto operator<=>(const ListKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

class VulkanForward final : public VulkanBackend {
 public:
  VulkanForward(std::unique_ptr<VulkanDevice> device, const ModelConfig& config,
                const PackManifest& pack, std::unique_ptr<ExpertStore> store,
                const VulkanForwardOptions& options)
      : device_(std::move(device)),
        config_(config),
        pack_(pack),
        store_(std::move(store)),
        options_(options),
        times_(options.times != nullptr ? options.times : std::make_shared<StageTimes>()),
        kernels_(*device_),
        seen_(device_->info()) {
    if (options.is_exact) seen_.has_cooperative_matrix = seen_.has_integer_dot = false;
  }

  ~VulkanForward() override {
    if (!options_.pipeline_file.empty()) save_pipeline_file(*device_, options_.pipeline_file);
  }

  Status open(const ModelWeights& weights);

  std::string_view name() const override { return "vulkan"; }
  std::size_t max_tokens() const override { return options_.rows; }
  std::size_t max_logit_rows() const override { return kDeviceLogitRows; }
  const VulkanDeviceInfo& device() const override { return device_->info(); }

  Result<std::unique_ptr<SequenceState>> make_state() override {
    MOE_ASSIGN_OR_RETURN(std::unique_ptr<VulkanState> state,
                         VulkanState::create(*device_, state_shape()));
    return std::unique_ptr<SequenceState>(std::move(state));
  }

  Status forward(std::span<const std::int32_t> tokens, std::span<BatchSlice> slices,
                 const WantedRows& wanted, ForwardObserver* observer) override;
  std::span<const TopLogit> top_logits() const override { return tops_; }
  Result<RowLogits> logits(std::span<const std::size_t> rows) override;

  ExpertStoreStats expert_stats() const override {
    ExpertStoreStats stats = store_->stats();
    stats.hits += experts_->hits();
    if (lanes_ != nullptr) stats.hits += lanes_->times().hits;
    return stats;
  }
  void reset_stats() override {
    store_->reset_stats();
    experts_->reset_stats();
    if (lanes_ != nullptr) lanes_->reset_times();
  }
  StageTimes& stage_times() override { return *times_; }
  Result<double> read_rate() override { return device_read_rate(*device_); }
  std::span<float> hidden_in(std::size_t rows) override { return port_->in(rows); }
  std::span<const float> hidden_out(std::size_t rows) const override { return port_->out(rows); }
  bool keeps_experts() const override { return lanes_ != nullptr; }
  std::optional<LaneUse> lane_use() const override {
    return counter_.has_value() ? std::optional(counter_->all()) : std::nullopt;
  }
  std::optional<LaneUse> recent_lane_use() const override {
    return counter_.has_value() ? std::optional(counter_->recent()) : std::nullopt;
  }
  void fade_lane_use() override {
    if (counter_.has_value()) counter_->fade();
  }
  void count_lanes(bool is_counting) override {
    if (lanes_ == nullptr || is_counting == counter_.has_value()) return;
    lanes_->count_in(nullptr);
    counter_.reset();
    if (!is_counting) return;
    counter_.emplace(ExpertShape{pack_.num_layers, pack_.num_experts}, config_.experts_per_token);
    lanes_->count_in(&*counter_);
  }
  Result<HotChange> exchange_hot(const SlotScores& scores, double rate) override {
    if (lanes_ == nullptr) return unsupported(Where{}, "no experts are kept on the device");
    MOE_RETURN_IF_ERROR(show_hidden());
    return moepack::exchange_hot(*experts_, scores, rate, pack_, *store_, hot_);
  }
  DeviceReport report() const override {
    DeviceReport report{.work = work_,
                        .taken_bytes = device_->taken_bytes(),
                        .lanes = {},
                        .kernels = kernel_times_};
    report.work.submissions = device_->submissions();
    if (lanes_ != nullptr) report.lanes = lanes_->times();
    return report;
  }

 private:
  VulkanStateShape state_shape() const {
    return {.config = config_,
            .context = options_.context,
            .tiled_v_heads = tiled_v_heads_,
            .kv_encoding = options_.kv_encoding};
  }
  Status make_memory();
  Status make_lanes(const ModelWeights& weights);
  Status write_grids();
  PathParts make_parts();
  // Whether what an ordered list hands on has room for all kinds of experts.
  bool can_hand_on() const;
  Path& path(const ListKey& key) { return key.is_prompt ? *prompt_ : *few_; }

  void record(CommandList& list, const ListKey& key);
  void record_begin(CommandList& list, const ListKey& key);
  void record_layer_begin(CommandList& list, const ListKey& key, std::uint32_t layer);
  void record_logits(CommandList& list, const ListKey& key);
  void record_tops(CommandList& list, const ListKey& key);
  void copy_back(CommandList& list, std::uint64_t from, std::uint64_t to, std::uint64_t bytes);
  Result<CommandList*> recorded(const ListKey& key);
  Status run(ListKey key);
  void take_times(const CommandList& list);
  Status run_by_layer(const ListKey& batch, std::span<BatchSlice> slices,
                      ForwardObserver* observer);
  bool has_lanes(const ListKey& key) const { return lanes_ != nullptr && !key.is_prompt; }
  std::vector<shader::Choice> choices_of(const ListKey& key, std::uint32_t layer) const;
  Status bring_experts(const ListKey& key, std::uint32_t layer, std::span<BatchSlice> slices);
  Status show_hidden();
  Result<bool> run_lanes(const ListKey& batch, std::uint32_t layer, std::span<BatchSlice> slices);
  void end_slices(std::span<BatchSlice> slices);
  void take_tops(std::size_t count);
  std::vector<float> rows_of(std::uint64_t address, std::size_t floats);

  std::unique_ptr<VulkanDevice> device_;
  ModelConfig config_;
  PackManifest pack_;
  std::unique_ptr<ExpertStore> store_;
  VulkanForwardOptions options_;
  bool tiled_v_heads_ = false;
  std::shared_ptr<StageTimes> times_;
  DeviceWork work_;
  KernelTimes kernel_times_;

  KernelSet kernels_;
  VulkanDeviceInfo seen_;  // what the paths may use of the device
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<DeviceExperts> experts_;
  std::unique_ptr<LaneJoin> lanes_;  // null without a cold lane
  HotSet hot_;                       // with one: what is kept; ids ascend
  std::optional<LaneCounter> counter_;
  // Whose kept experts were computed with the first of several parts and are out of the table.
  std::optional<std::uint32_t> hidden_layer_;
  DeviceBuffer scratch_memory_;
  DeviceScratch scratch_;
  std::optional<BatchTables> tables_;
  std::optional<StagePort> port_;
  // row_error [T], Largest [kDeviceLogitRows], choices [T, S], logits [kDeviceLogitRows, V]; where
  // each begins.
  DeviceBuffer readback_;
  std::uint64_t tops_at_ = 0;
  std::uint64_t choices_at_ = 0;
  std::uint64_t logits_at_ = 0;
  std::unique_ptr<Path> few_;
  std::unique_ptr<Path> prompt_;
  std::map<ListKey, std::unique_ptr<CommandList>> lists_;  // go before what they use

  std::vector<std::size_t> given_rows_;  // whose logits are in readback_
  std::vector<TopLogit> tops_;
};

Status VulkanForward::open(const ModelWeights& weights) {
  if (!options_.pipeline_file.empty()) load_pipeline_file(*device_, options_.pipeline_file);
  MOE_ASSIGN_OR_RETURN(weights_, upload_weights(*device_, config_, weights, options_.place));
  std::vector<SharedExpert> shared;
  for (const DeviceLayer& layer : weights_->layers) {
    shared.push_back({.record = layer.moe.shared_record,
                      .layout = layer.moe.shared,
                      .has_own_inputs = layer.moe.shared_input_norm != 0});
    if (const auto* delta = std::get_if<DeviceDelta>(&layer.mixer)) {
      tiled_v_heads_ = delta->tiled_v_heads;
    }
  }
  MOE_ASSIGN_OR_RETURN(
      experts_,
      DeviceExperts::create(*device_, pack_, shared, options_.plan.expert_bytes, options_.threads));
  if (experts_->holds_all()) MOE_RETURN_IF_ERROR(experts_->load_all(*store_));
  MOE_RETURN_IF_ERROR(make_memory());
  if (!experts_->holds_all() && options_.cold.kernels != nullptr) {
    MOE_RETURN_IF_ERROR(make_lanes(weights));
  }
  reset_stats();  // of loading
  const PathParts parts = make_parts();
  few_ = make_few_rows_path(parts);
  prompt_ = make_prompt_path(parts);
  return Status::ok();
}

Status VulkanForward::make_lanes(const ModelWeights& weights) {
  const std::uint64_t slots = share_slots(experts_->slots(), config_.experts_per_token).hot;
  std::vector<std::uint32_t> experts(config_.num_layers);
  for (std::uint32_t l = 0; l < experts.size(); ++l) experts[l] = pack_.experts_of(l);
  const HotSet hot =
      options_.cold.hot.has_value() ? *options_.cold.hot : flat_hot_set(experts, slots);
  MOE_RETURN_IF_ERROR(check_hot_set(hot, experts, slots));
  MOE_RETURN_IF_ERROR(experts_->keep(hot, *store_));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<ColdLane> cold,
                       ColdLane::create(config_, weights, *options_.cold.kernels,
                                        {.rows = kFewRows,
                                         .threads = options_.cold.threads,
                                         .activations = options_.cold.activations}));
  MOE_ASSIGN_OR_RETURN(lanes_, LaneJoin::create(*device_, config_.hidden_size, std::move(cold)));
  hot_ = in_order(hot, config_.num_layers);
  count_lanes(options_.cold.counts);
  return Status::ok();
}

Status VulkanForward::make_memory() {
  const ScratchLimits limits{
      .rows = options_.rows,
      .slices = options_.sequences,
      .shared_width = config_.shared_expert_width,
      .splits = attend_splits(config_, device_->info().subgroup_size, options_.context),
      .hands_on = device_->takes_ordered_programs()};
  MOE_ASSIGN_OR_RETURN(scratch_memory_,
                       device_->allocate(scratch_bytes(config_, limits), MemoryKind::kDevice));
  scratch_ = scratch_at(config_, limits, scratch_memory_.address());
  MOE_ASSIGN_OR_RETURN(tables_, BatchTables::create(*device_, {.rows = options_.rows,
                                                               .slices = options_.sequences,
                                                               .layers = config_.num_layers,
                                                               .logit_rows = kDeviceLogitRows}));
  MOE_ASSIGN_OR_RETURN(
      port_, StagePort::create(*device_, options_.place, options_.rows, config_.hidden_size));
  tops_at_ = options_.rows * sizeof(std::uint32_t);
  choices_at_ = tops_at_ + kDeviceLogitRows * sizeof(shader::Largest);
  logits_at_ =
      choices_at_ + options_.rows * (config_.experts_per_token + 1) * sizeof(shader::Choice);
  MOE_ASSIGN_OR_RETURN(readback_,
                       device_->allocate(logits_at_ + std::uint64_t{kDeviceLogitRows} *
                                                          config_.vocab_size * sizeof(float),
                                         MemoryKind::kReadback));
  return write_grids();
}

// What kernels count on before they first run.
Status VulkanForward::write_grids() {
  const std::uint64_t heads = kFewRows * attention_widths(config_).heads;
  const std::vector<std::uint32_t> zeros(
      std::max({options_.rows, heads, std::uint64_t{kDeviceLogitRows}}));
  const std::pair<std::uint64_t, std::uint64_t> counters[] = {
      {scratch_.arrived, options_.rows},
      {scratch_.arrived_heads, heads},
      {scratch_.arrived_tops, kDeviceLogitRows}};
  for (const auto& [at, count] : counters) {
    MOE_RETURN_IF_ERROR(device_->upload(scratch_memory_, at - scratch_memory_.address(),
                                        std::as_bytes(std::span(zeros).first(count))));
  }
  if (config_.dense_width != 0) {
    const std::vector<shader::Choice> dense(options_.rows, {config_.num_experts, 1.0F});
    MOE_RETURN_IF_ERROR(device_->upload(scratch_memory_,
                                        scratch_.dense_choices - scratch_memory_.address(),
                                        std::as_bytes(std::span(dense))));
  }
  const PathParts parts = make_parts();
  std::vector<shader::RouteArgs> routes;
  for (std::uint32_t layer = 0; layer < config_.num_layers; ++layer) {
    // Of ordered lists alone, whose stages hand on logits (few_rows_path.cpp).
    shader::RouteArgs route = route_args(parts, layer);
    route.logits = HandedScratch::router_logits(config_, scratch_, layer);
    route.shared_logits = HandedScratch::shared_logits(config_, scratch_, layer);
    routes.push_back(route);
  }
  MOE_RETURN_IF_ERROR(device_->upload(scratch_memory_, scratch_.routes - scratch_memory_.address(),
                                      std::as_bytes(std::span(routes))));
  std::vector<shader::DispatchSize> grids;
  for (const std::uint32_t width : parts.grid_widths) grids.push_back({width, 0, 1});
  return device_->upload(scratch_memory_, scratch_.grids - scratch_memory_.address(),
                         std::as_bytes(std::span(grids)));
}

PathParts VulkanForward::make_parts() {
  return {.config = config_,
          .device = seen_,
          .kernels = kernels_,
          .weights = *weights_,
          .experts = *experts_,
          .scratch = scratch_,
          .tables = *tables_,
          .scratch_buffer = scratch_memory_,
          .kv_encoding = options_.kv_encoding,
          .context = options_.context,
          .grid_widths = expert_grid_widths(config_)};
}

bool VulkanForward::can_hand_on() const {
  for (std::uint32_t layer = 0; layer < config_.num_layers; ++layer) {
    if (experts_->layer(layer).kinds.size() > HandedLayer::kMostKinds) return false;
  }
  return true;
}

void VulkanForward::record_layer_begin(CommandList& list, const ListKey& key, std::uint32_t layer) {
  list.stage(keeps_positions(config_.layer_type(layer)) ? Stage::kFullAttention : Stage::kDeltaNet);
  path(key).mix(list, key.shape, layer);
  list.stage(Stage::kRouter);
  path(key).route(list, key.shape, layer);
}

// By a kernel: a command that copies would wait for all before it.
void VulkanForward::copy_back(CommandList& list, std::uint64_t from, std::uint64_t to,
                              std::uint64_t bytes) {
  constexpr std::uint32_t kThreads = 256;
  constexpr std::uint32_t kMostGroups = 512;
  const std::uint32_t words = count32(bytes / sizeof(std::uint32_t));
  list.dispatch(stage_kernel(few_->parts(), list, "copy_words", {kThreads}),
                shader::CopyWordsArgs{.from = from, .to = readback_.address() + to, .count = words},
                {std::min(groups_of(words, kThreads), kMostGroups), 1, 1});
}

void VulkanForward::record_tops(CommandList& list, const ListKey& key) {
  list.dispatch(stage_kernel(few_->parts(), list, "argmax", {256}),
                shader::ArgmaxArgs{.logits = scratch_.logits,
                                   .found = scratch_.tops,
                                   .best = readback_.address() + tops_at_,
                                   .arrived = scratch_.arrived_tops,
                                   .width = config_.vocab_size,
                                   .limit = key.top_of,
                                   .stride = config_.vocab_size,
                                   .parts = kTopParts},
                {kTopParts, key.logit_rows, 1});
}

void VulkanForward::record_logits(CommandList& list, const ListKey& key) {
  list.stage(Stage::kHead);
  record_head(path(key).parts(), list, key.logit_rows);
  list.barrier();
  if (key.top_of != 0) {
    record_tops(list, key);
  } else {
    copy_back(list, scratch_.logits, logits_at_,
              std::uint64_t{key.logit_rows} * config_.vocab_size * sizeof(float));
  }
}

void VulkanForward::record_begin(CommandList& list, const ListKey& key) {
  if (options_.place.is_first) {
    path(key).embed(list, key.shape);
  } else {
    port_->record_in(path(key).parts(), list, key.shape);
  }
}

void VulkanForward::record(CommandList& list, const ListKey& key) {
  Path& way = path(key);
  way.begin(list, key.shape);
  const std::uint32_t last = config_.num_layers - 1;
  const auto experts = [&](std::uint32_t layer) {
    list.stage(Stage::kExperts);
    way.run_experts(list, key.shape, layer);
    way.add_experts(list, key.shape, layer);
  };
  list.stage(Stage::kEmbed);
  if (key.part == Part::kWhole || key.part == Part::kBegin || key.part == Part::kHead) {
    tables_->record_copy(list);
  }
  switch (key.part) {
    case Part::kWhole:
      record_begin(list, key);
      for (std::uint32_t layer = 0; layer <= last; ++layer) {
        record_layer_begin(list, key, layer);
        experts(layer);
      }
      break;
    case Part::kBegin:
      record_begin(list, key);
      record_layer_begin(list, key, 0);
      break;
    case Part::kExperts:
      way.run_experts(list, key.shape, key.layer);
      break;
    case Part::kNext:
      experts(key.layer);
      record_layer_begin(list, key, key.layer + 1);
      break;
    case Part::kEnd:
      experts(last);
      break;
    case Part::kHead:
      break;
    case Part::kHot:
      list.stage(Stage::kExperts);
      way.run_experts(list, key.shape, key.layer);
      // Else both lanes' results are joined by the part behind.
      if (weights_->layers[key.layer].moe.is_plain_sum) {
        way.add_experts(list, key.shape, key.layer);
      }
      return;
    case Part::kJoin:
      lanes_->record_join(way.parts(), list, key.shape, key.layer);
      record_layer_begin(list, key, key.layer + 1);
      break;
    case Part::kJoinEnd:
      lanes_->record_join(way.parts(), list, key.shape, last);
      break;
  }
  if (key.part != Part::kHead) {
    copy_back(list, scratch_.row_error, 0, key.shape.rows * sizeof(std::uint32_t));
  }
  if (key.part == Part::kBegin || key.part == Part::kNext || key.part == Part::kJoin) {
    if (has_lanes(key)) lanes_->record_hidden(way.parts(), list, key.shape);
    copy_back(
        list, scratch_.choices, choices_at_,
        std::uint64_t{key.shape.rows} * (config_.experts_per_token + 1) * sizeof(shader::Choice));
  }
  const bool is_end =
      key.part == Part::kWhole || key.part == Part::kEnd || key.part == Part::kJoinEnd;
  if (is_end && !options_.place.is_last) port_->record_out(way.parts(), list, key.shape);
  if (key.logit_rows != 0) record_logits(list, key);
}

Result<CommandList*> VulkanForward::recorded(const ListKey& key) {
  auto found = lists_.find(key);
  if (found == lists_.end()) {
    if (lists_.size() >= kMostLists) lists_.clear();
    auto list = std::make_unique<CommandList>(
        *device_, CommandListOptions{
                      .is_timed = key.is_timed,
                      .is_ordered = key.part == Part::kWhole && !key.is_prompt && can_hand_on()});
    record(*list, key);
    MOE_RETURN_IF_ERROR(kernels_.status());
    MOE_RETURN_IF_ERROR(list->finish());
    found = lists_.emplace(key, std::move(list)).first;
  }
  work_.dispatches += found->second->dispatches();
  work_.barriers += found->second->barriers();
  return found->second.get();
}

Status VulkanForward::run(ListKey key) {
  key.is_timed = times_->is_running();
  MOE_ASSIGN_OR_RETURN(CommandList* const list, recorded(key));
  const Status status = device_->run(*list);
  // What went wrong may be written in the list itself.
  if (!status.is_ok()) lists_.erase(key);
  if (status.is_ok() && key.is_timed) take_times(*list);
  return status;
}

void VulkanForward::take_times(const CommandList& list) {
  const std::vector<double> seconds = list.span_seconds();
  for (std::size_t i = 0; i < seconds.size() && i < list.spans().size(); ++i) {
    const TimedSpan& span = list.spans()[i];
    times_->credit(span.stage, seconds[i]);
    KernelTime& time = kernel_times_[span.kernels];
    ++time.runs;
    time.seconds += seconds[i];
  }
}

// Ends the slices that have a row whose numbers are not finite, at its first such layer.
void VulkanForward::end_slices(std::span<BatchSlice> slices) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (BatchSlice& slice : slices) {
    if (!slice.status.is_ok()) continue;
    std::uint32_t layer = ~0U;
    std::size_t token = 0;
    for (std::size_t t = 0; t < slice.count; ++t) {
      std::uint32_t error = 0;
      std::memcpy(&error, readback_.mapped() + (slice.first + t) * sizeof(error), sizeof(error));
      if (error >= layer) continue;
      layer = error;
      token = t;
    }
    if (layer == ~0U) continue;
    slice.status = check_finite(options_.place.first_layer + layer, slice.position + token, 1,
                                std::span(&nan, 1), std::span(&nan, 1));
  }
}

std::vector<float> VulkanForward::rows_of(std::uint64_t address, std::size_t floats) {
  std::vector<float> values(floats);
  (void)device_->download(scratch_memory_, address - scratch_memory_.address(),
                          std::as_writable_bytes(std::span(values)));
  return values;
}

// What the router of the layer has chosen: [rows, slots].
std::vector<shader::Choice> VulkanForward::choices_of(const ListKey& key,
                                                      std::uint32_t layer) const {
  std::vector<shader::Choice> choices(key.shape.rows * slots_of(config_, weights_->layers[layer]));
  std::memcpy(choices.data(), readback_.mapped() + choices_at_,
              choices.size() * sizeof(shader::Choice));
  return choices;
}

// A layer's experts in two lanes; false where all lie on the device, and nothing was done.
Result<bool> VulkanForward::run_lanes(const ListKey& batch, std::uint32_t layer,
                                      std::span<BatchSlice> slices) {
  const std::vector<shader::Choice> choices = choices_of(batch, layer);
  std::vector<std::uint8_t> is_live(batch.shape.rows);
  for (const BatchSlice& slice : slices) {
    std::fill_n(is_live.begin() + static_cast<std::ptrdiff_t>(slice.first), slice.count,
                slice.status.is_ok() ? std::uint8_t{1} : std::uint8_t{0});
  }
  lanes_->divide(choices, slots_of(config_, weights_->layers[layer]), is_live, layer, *experts_,
                 config_.num_experts);
  if (!lanes_->has_cold()) return false;
  CommandList* hot = nullptr;
  if (lanes_->has_hot()) {
    MOE_ASSIGN_OR_RETURN(hot, recorded({.part = Part::kHot,
                                        .is_prompt = false,
                                        .shape = batch.shape,
                                        .layer = layer,
                                        .is_timed = true}));
  }
  MOE_RETURN_IF_ERROR(lanes_->run(*device_, hot, layer, batch.shape.rows, *store_));
  if (hot != nullptr && times_->is_running()) take_times(*hot);
  for (const FailedRow& failed : lanes_->failed_rows()) {
    for (BatchSlice& slice : slices) {
      const bool is_of = failed.row >= slice.first && failed.row < slice.first + slice.count;
      if (is_of && slice.status.is_ok()) slice.status = failed.status;
    }
  }
  return true;
}

// The experts of a layer that rows have chosen, brought in as many parts as the device has room
// for, what is kept there with the first. All but the last part are computed here.
Status VulkanForward::bring_experts(const ListKey& key, std::uint32_t layer,
                                    std::span<BatchSlice> slices) {
  const std::size_t slots = slots_of(config_, weights_->layers[layer]);
  const std::vector<shader::Choice> choices = choices_of(key, layer);
  std::vector<std::uint32_t> wanted;
  for (const shader::Choice& choice : choices) {
    if (choice.expert < config_.num_experts) wanted.push_back(choice.expert);
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  const auto passing =
      std::stable_partition(wanted.begin(), wanted.end(),
                            [&](std::uint32_t expert) { return experts_->is_kept(layer, expert); });
  std::size_t room = static_cast<std::size_t>(passing - wanted.begin()) + experts_->passing_slots();
  std::vector<Status> failed(wanted.size());
  std::size_t count = 0;
  for (std::size_t first = 0; first < wanted.size(); first += count) {
    count = std::min(room, wanted.size() - first);
    room = experts_->passing_slots();
    MOE_RETURN_IF_ERROR(experts_->fetch(layer, std::span(wanted).subspan(first, count), *store_,
                                        std::span(failed).subspan(first, count)));
    if (first + count < wanted.size()) {
      MOE_RETURN_IF_ERROR(run({.part = Part::kExperts,
                               .is_prompt = key.is_prompt,
                               .shape = key.shape,
                               .layer = layer}));
    }
    if (first == 0 && count < wanted.size() && passing != wanted.begin()) {
      hidden_layer_ = layer;
      MOE_RETURN_IF_ERROR(experts_->show_kept(layer, false));
    }
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (failed[i].is_ok()) continue;
    for (BatchSlice& slice : slices) {
      const auto begin = choices.begin() + static_cast<std::ptrdiff_t>(slice.first * slots);
      const bool uses =
          std::any_of(begin, begin + static_cast<std::ptrdiff_t>(slice.count * slots),
                      [&](const shader::Choice& choice) { return choice.expert == wanted[i]; });
      if (uses && slice.status.is_ok()) slice.status = failed[i];
    }
  }
  return Status::ok();
}

Status VulkanForward::show_hidden() {
  if (!hidden_layer_.has_value()) return Status::ok();
  return experts_->show_kept(*std::exchange(hidden_layer_, std::nullopt), true);
}

Status VulkanForward::run_by_layer(const ListKey& batch, std::span<BatchSlice> slices,
                                   ForwardObserver* observer) {
  const std::size_t rows = batch.shape.rows;
  const std::size_t width = config_.hidden_size;
  ListKey key = batch;
  key.part = Part::kBegin;
  key.logit_rows = 0;
  key.top_of = 0;
  MOE_RETURN_IF_ERROR(show_hidden());  // of a batch that an error ended
  if (has_lanes(batch)) MOE_RETURN_IF_ERROR(experts_->drop_passing());
  MOE_RETURN_IF_ERROR(run(key));
  for (std::uint32_t layer = 0; layer < config_.num_layers; ++layer) {
    const bool has_routed = weights_->layers[layer].moe.has_experts;
    if (observer != nullptr && has_routed) {
      observer->on_router(options_.place.first_layer + layer, rows,
                          rows_of(scratch_.router_logits, rows * config_.num_experts));
    }
    const bool is_last = layer + 1 == config_.num_layers;
    key.layer = layer;
    key.part = is_last ? Part::kEnd : Part::kNext;
    if (!has_routed) {
      // Nothing is chosen here, and what the layer needs lies on the device.
    } else if (has_lanes(batch)) {
      MOE_ASSIGN_OR_RETURN(const bool has_joined, run_lanes(batch, layer, slices));
      if (has_joined) key.part = is_last ? Part::kJoinEnd : Part::kJoin;
    } else if (!experts_->holds_all()) {
      if (counter_.has_value()) counter_->note_fallback(LaneFallback::kFetched);
      MOE_RETURN_IF_ERROR(bring_experts(batch, layer, slices));
    }
    key.logit_rows = is_last ? batch.logit_rows : 0;
    key.top_of = is_last ? batch.top_of : 0;
    MOE_RETURN_IF_ERROR(run(key));
    MOE_RETURN_IF_ERROR(show_hidden());
    if (observer != nullptr && is_last && options_.place.is_last) {
      observer->on_layer(options_.place.first_layer + layer, rows,
                         rows_of(scratch_.hidden, rows * width));
    }
  }
  return Status::ok();
}

Status VulkanForward::forward(std::span<const std::int32_t> tokens, std::span<BatchSlice> slices,
                              const WantedRows& wanted, ForwardObserver* observer) {
  tables_->write(tokens, slices);
  const std::size_t count = std::min<std::size_t>(wanted.rows.size(), kDeviceLogitRows);
  tables_->write_logit_rows(wanted.rows.first(count));
  ListKey key{.part = Part::kWhole,
              .is_prompt = false,
              .shape = {.rows = count32(tokens.size()), .slices = count32(slices.size())},
              .layer = 0,
              .logit_rows = count32(count),
              .top_of = count == wanted.rows.size() ? wanted.top_of : 0};
  for (const BatchSlice& slice : slices) {
    key.shape.most_rows = std::max(key.shape.most_rows, count32(slice.count));
  }
  const std::size_t uses = tokens.size() * config_.experts_per_token;
  const bool has_room = lanes_ != nullptr || experts_->holds_all() || uses <= experts_->slots();
  key.is_prompt = tokens.size() > kFewRows || !has_room;
  given_rows_.clear();
  tops_.clear();
  ++work_.batches;
  const Status status =
      experts_->holds_all() && observer == nullptr ? run(key) : run_by_layer(key, slices, observer);
  MOE_RETURN_IF_ERROR(status);
  if (experts_->holds_all()) experts_->count_hits(uses * pack_.expert_layers());
  end_slices(slices);
  if (key.top_of != 0) {
    take_tops(count);
  } else {
    given_rows_.assign(wanted.rows.begin(),
                       wanted.rows.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return Status::ok();
}

void VulkanForward::take_tops(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    shader::Largest top{};
    std::memcpy(&top, readback_.mapped() + tops_at_ + i * sizeof(top), sizeof(top));
    tops_.push_back({.id = static_cast<std::int32_t>(top.id), .is_finite = top.not_finite == 0});
  }
}

Result<RowLogits> VulkanForward::logits(std::span<const std::size_t> rows) {
  const bool is_given = rows.size() <= given_rows_.size() &&
                        std::equal(rows.begin(), rows.end(), given_rows_.begin());
  if (!is_given) {
    tables_->write_logit_rows(rows);
    MOE_RETURN_IF_ERROR(
        run({.part = Part::kHead, .shape = {}, .logit_rows = count32(rows.size())}));
    given_rows_.assign(rows.begin(), rows.end());
  }
  const auto* values = reinterpret_cast<const float*>(readback_.mapped() + logits_at_);
  return RowLogits{.values = {values, rows.size() * config_.vocab_size}};
}

}  // namespace

Result<std::unique_ptr<VulkanBackend>> make_vulkan_forward(std::unique_ptr<VulkanDevice> device,
                                                           const ModelConfig& config,
                                                           const ModelWeights& weights,
                                                           const PackManifest& pack,
                                                           std::unique_ptr<ExpertStore> store,
                                                           const VulkanForwardOptions& options) {
  auto forward =
      std::make_unique<VulkanForward>(std::move(device), config, pack, std::move(store), options);
  MOE_RETURN_IF_ERROR(forward->open(weights));
  return std::unique_ptr<VulkanBackend>(std::move(forward));
}

}  // namespace moepack
