#include "runtime/engine.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "formats/base/output_file.h"
#include "runtime/backend_opening.h"
#include "runtime/batch_schedule.h"
#include "runtime/hot_profile.h"
#include "runtime/model/finite.h"
#include "runtime/model/token_ids.h"
#include "runtime/placement/lane_report.h"
#include "runtime/score/ranked_logits.h"
#include "runtime/vulkan/vulkan_forward.h"

namespace moepack {
namespace {

Status check_slice(const Slice& slice, const ModelConfig& config) {
  const Sequence& sequence = *slice.sequence;
  if (!sequence.status().is_ok()) {
    return invalid_argument("the sequence has ended: " + sequence.status().message(),
                            "reset or restore it");
  }
  if (slice.tokens.size() > sequence.context() - sequence.position()) {
    return invalid_argument(std::to_string(sequence.position() + slice.tokens.size()) +
                                " tokens do not fit the context of " +
                                std::to_string(sequence.context()),
                            "raise -c or shorten the prompt");
  }
  return check_tokens(slice.tokens, config.vocab_size);
}

std::vector<Status> check_slices(std::span<const Slice> slices, const ModelConfig& config) {
  std::vector<Status> statuses;
  statuses.reserve(slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto before = slices.first(i);
    const bool again = std::any_of(before.begin(), before.end(), [&](const Slice& other) {
      return other.sequence == slices[i].sequence;
    });
    statuses.push_back(again ? invalid_argument("two slices of one call name the same sequence",
                                                "run them one after the other")
                             : check_slice(slices[i], config));
  }
  return statuses;
}

// Finite logits.
Status give_row(const Slice& slice, std::size_t index, std::span<const float> logits) {
  if (!slice.top) return slice.sink(index, logits);
  const auto of = logits.first(std::min<std::size_t>(slice.top_of, logits.size()));
  return slice.top(index, highest_logit(of));
}

}  // namespace

struct Engine::Impl {
  Result<Sequence> make_sequence() const;
  Status open_own();
  void run_batch(Batch& batch, std::span<const Slice> slices, ForwardObserver* observer);
  void advance(Batch& batch, std::span<const Slice> slices, std::span<Status> statuses);
  std::uint32_t top_of(std::span<const LogitRow> rows, std::span<const Slice> slices) const;
  bool give_tops(std::span<const LogitRow> rows, std::span<const Slice> slices,
                 std::span<Status> statuses);
  void give_logits(const Batch& batch, std::span<const Slice> slices, std::span<Status> statuses);
  VulkanBackend* lanes() const;
  Result<HotChange> exchange(const LaneUse& use, double rate) const;
  std::optional<LaneUse> lane_use() const;
  Status write_lane_report() const;

  EngineOptions options;
  ModelConfig config;
  MemoryPlan plan;
  std::optional<DeviceUse> device;
  std::string choice;
  ProfiledModel profiled;
  IoChoice io;
  ModelSize size;
  std::filesystem::path layer_file;
  std::uint64_t cut_tokens = 1;
  std::uint64_t decode_rows = 1;
  StateIdentity identity;
  std::shared_ptr<SequenceSlots> slots;
  std::unique_ptr<ForwardBackend> backend;
  std::optional<Sequence> own;  // of the calls that name none
};

void Engine::Impl::run_batch(Batch& batch, std::span<const Slice> slices,
                             ForwardObserver* observer) {
  const std::vector<LogitRow> rows = logit_rows(batch, slices);
  std::vector<std::size_t> wanted;
  for (const LogitRow& row : rows) wanted.push_back(row.row);
  const Status status = backend->forward(
      batch.tokens, batch.slices, {.rows = wanted, .top_of = top_of(rows, slices)}, observer);
  if (!status.is_ok()) batch.end(status);
}

// Counts the tokens of the slices that went through, and ends the sequences of the others.
void Engine::Impl::advance(Batch& batch, std::span<const Slice> slices,
                           std::span<Status> statuses) {
  for (std::size_t i = 0; i < batch.slices.size(); ++i) {
    const BatchSlice& part = batch.slices[i];
    Sequence& sequence = *slices[batch.owners[i]].sequence;
    if (part.status.is_ok()) {
      sequence.advance(part.count);
    } else {
      sequence.end(part.status);
      statuses[batch.owners[i]] = part.status;
    }
  }
}

// WantedRows::top_of: 0 unless all rows want the same.
std::uint32_t Engine::Impl::top_of(std::span<const LogitRow> rows,
                                   std::span<const Slice> slices) const {
  if (rows.empty()) return 0;
  const auto limit = [&](const LogitRow& row) {
    const Slice& slice = slices[row.owner];
    return slice.top ? std::min(slice.top_of, config.vocab_size) : 0;
  };
  const std::uint32_t first = limit(rows.front());
  const bool is_same = std::all_of(rows.begin(), rows.end(),
                                   [&](const LogitRow& row) { return limit(row) == first; });
  return is_same ? first : 0;
}

// Whether the backend has found the highest logits of all rows. Rows with others than numbers are
// told of with their logits.
bool Engine::Impl::give_tops(std::span<const LogitRow> rows, std::span<const Slice> slices,
                             std::span<Status> statuses) {
  const std::span<const TopLogit> tops = backend->top_logits();
  if (tops.size() != rows.size() ||
      !std::all_of(tops.begin(), tops.end(), [](const TopLogit& t) { return t.is_finite; })) {
    return false;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Status& status = statuses[rows[i].owner];
    if (!status.is_ok()) continue;
    status = slices[rows[i].owner].top(rows[i].index, tops[i].id);
    if (!status.is_ok()) slices[rows[i].owner].sequence->end(status);
  }
  return true;
}

void Engine::Impl::give_logits(const Batch& batch, std::span<const Slice> slices,
                               std::span<Status> statuses) {
  const std::vector<LogitRow> rows = logit_rows(batch, slices);
  if (rows.empty() || give_tops(rows, slices, statuses)) return;
  const std::size_t vocab = config.vocab_size;
  std::vector<std::size_t> places;
  for (std::size_t first = 0; first < rows.size(); first += backend->max_logit_rows()) {
    const std::size_t count = std::min(backend->max_logit_rows(), rows.size() - first);
    places.clear();
    for (std::size_t i = 0; i < count; ++i) places.push_back(rows[first + i].row);
    const Result<RowLogits> logits = backend->logits(places);
    for (std::size_t i = 0; i < count; ++i) {
      const LogitRow& row = rows[first + i];
      Status& status = statuses[row.owner];
      if (!status.is_ok()) continue;
      status = logits.status();
      if (status.is_ok()) {
        const RowLogits& given = logits.value();
        const std::span<const float> of_row = given.values.subspan(i * vocab, vocab);
        if (!given.are_finite) status = check_logits_finite(row.position, of_row);
        if (status.is_ok()) status = give_row(slices[row.owner], row.index, of_row);
      }
      if (!status.is_ok()) slices[row.owner].sequence->end(status);
    }
  }
}

// The device that keeps hot experts; null where there is none.
VulkanBackend* Engine::Impl::lanes() const {
  auto* vulkan = dynamic_cast<VulkanBackend*>(backend.get());
  return vulkan == nullptr || !vulkan->keeps_experts() ? nullptr : vulkan;
}

Result<HotChange> Engine::Impl::exchange(const LaneUse& use, double rate) const {
  return lanes()->exchange_hot(slot_scores(use, options.hot.weighting), rate);
}

std::optional<LaneUse> Engine::Impl::lane_use() const {
  const VulkanBackend* const keeper = lanes();
  return keeper == nullptr ? std::nullopt : keeper->lane_use();
}

Status Engine::Impl::write_lane_report() const {
  if (options.hot.report.empty()) return Status::ok();
  const std::optional<LaneUse> use = lane_use();
  return write_output_text(options.hot.report,
                           use.has_value() ? lane_report_text(*use) : no_lane_report_text());
}

Result<Sequence> Engine::Impl::make_sequence() const {
  return Sequence::create(identity, slots, [this] { return backend->make_state(); });
}

Status Engine::Impl::open_own() {
  if (own.has_value()) return Status::ok();
  MOE_ASSIGN_OR_RETURN(Sequence sequence, make_sequence());
  own.emplace(std::move(sequence));
  return Status::ok();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  if (options.context == 0 || options.sequences == 0) {
    return invalid_argument("context and sequences must be at least 1");
  }
  auto impl = std::make_unique<Impl>();
  MOE_ASSIGN_OR_RETURN(OpenedBackend opened, open_backend(options));
  if (options.timeline != nullptr) opened.backend->stage_times().note_in(*options.timeline);
  impl->options = options;
  impl->options.backend = opened.chosen;
  impl->options.chunk_tokens = opened.chunk_tokens;
  impl->options.store.lookahead = opened.lookahead;
  impl->cut_tokens = opened.cut_tokens;
  impl->decode_rows = opened.decode_rows;
  impl->config = opened.config;
  impl->plan = opened.plan;
  impl->device = opened.device;
  impl->choice = std::move(opened.choice);
  impl->profiled = std::move(opened.profiled);
  impl->io = std::move(opened.io);
  impl->size = opened.size;
  impl->layer_file = std::move(opened.layer_file);
  impl->identity = {
      .model = opened.fingerprint, .context = options.context, .kv_encoding = options.kv_encoding};
  impl->slots = std::make_shared<SequenceSlots>(options.sequences);
  impl->backend = std::move(opened.backend);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<Sequence> Engine::make_sequence() { return impl_->make_sequence(); }

std::vector<Status> Engine::forward(std::span<const Slice> slices, ForwardObserver* observer) {
  Impl& e = *impl_;
  std::vector<Status> statuses = check_slices(slices, e.config);
  BatchSchedule schedule(slices, e.backend->max_tokens());
  while (true) {
    Batch batch = schedule.next(statuses);
    if (batch.tokens.empty()) return statuses;
    e.run_batch(batch, slices, observer);
    e.advance(batch, slices, statuses);
    e.give_logits(batch, slices, statuses);
  }
}

Status Engine::forward(std::span<const std::int32_t> tokens, std::size_t first_logits,
                       const LogitsSink& sink, ForwardObserver* observer) {
  MOE_RETURN_IF_ERROR(impl_->open_own());
  const Slice slice{&*impl_->own, tokens, first_logits, sink};
  return forward(std::span(&slice, 1), observer).front();
}

Status Engine::forward_top(std::span<const std::int32_t> tokens, std::size_t first,
                           std::uint32_t top_of, const TopSink& sink) {
  MOE_RETURN_IF_ERROR(impl_->open_own());
  const Slice slice{&*impl_->own, tokens, first, {}, sink, top_of};
  return forward(std::span(&slice, 1)).front();
}

void Engine::reset() {
  if (impl_->own.has_value()) impl_->own->reset();
}

WindowForward Engine::window_forward() {
  return [this](std::span<const std::int32_t> tokens, std::size_t first, const LogitsSink& sink) {
    reset();
    return forward(tokens, first, sink);
  };
}

const EngineOptions& Engine::options() const { return impl_->options; }
const ModelConfig& Engine::config() const { return impl_->config; }
std::uint64_t Engine::context() const { return impl_->identity.context; }
std::uint64_t Engine::position() const {
  return impl_->own.has_value() ? impl_->own->position() : 0;
}
Result<Sequence*> Engine::own_sequence() {
  MOE_RETURN_IF_ERROR(impl_->open_own());
  return &*impl_->own;
}
std::uint64_t Engine::cut_tokens() const { return impl_->cut_tokens; }
std::uint64_t Engine::decode_rows() const { return impl_->decode_rows; }
std::string_view Engine::kernels_name() const { return impl_->backend->name(); }
std::string_view Engine::kernels_bits() const { return impl_->backend->bits(); }
const MemoryPlan& Engine::memory_plan() const { return impl_->plan; }
ExpertStoreStats Engine::expert_stats() const { return impl_->backend->expert_stats(); }
ExpertUsageMap Engine::expert_usage() const { return impl_->backend->expert_usage(); }
RoutingAgreement Engine::routing_agreement() const { return impl_->backend->routing_agreement(); }
void Engine::reset_stats() { impl_->backend->reset_stats(); }
Status Engine::finish() {
  MOE_RETURN_IF_ERROR(impl_->backend->finish_recording());
  return impl_->write_lane_report();
}
StageTimes& Engine::stage_times() { return impl_->backend->stage_times(); }
const ModelSize& Engine::model_size() const { return impl_->size; }
const std::optional<DeviceUse>& Engine::device_use() const { return impl_->device; }
std::optional<DeviceReport> Engine::device_report() const {
  const auto* device = dynamic_cast<const VulkanBackend*>(impl_->backend.get());
  return device == nullptr ? std::nullopt : std::optional(device->report());
}
Result<HotChange> Engine::adapt_hot_experts() {
  const double rate = impl_->options.hot.update_rate;
  VulkanBackend* const device = impl_->lanes();
  if (rate <= 0 || device == nullptr) return HotChange{};
  const std::optional<LaneUse> recent = device->recent_lane_use();
  if (!recent.has_value()) return HotChange{};
  const Result<HotChange> change = impl_->exchange(*recent, rate);
  device->fade_lane_use();
  return change;
}
Result<HotChange> Engine::apply_hot_profile(std::string_view json, const std::string& name,
                                            double rate) {
  MOE_ASSIGN_OR_RETURN(const LaneUse use, parse_hot_use(json, name, impl_->profiled));
  if (impl_->lanes() == nullptr) return HotChange{};
  return impl_->exchange(use, rate);
}
std::optional<LaneUse> Engine::lane_use() const { return impl_->lane_use(); }
void Engine::count_lanes(bool is_counting) {
  if (VulkanBackend* const device = impl_->lanes(); device != nullptr) {
    device->count_lanes(is_counting);
  }
}
Result<double> Engine::device_read_rate() {
  auto* device = dynamic_cast<VulkanBackend*>(impl_->backend.get());
  if (device == nullptr) return unsupported(Where{}, "no device computes");
  return device->read_rate();
}
Result<DiskRate> Engine::disk_rate() const {
  return measure_disk_rate(impl_->layer_file, {.request_bytes = impl_->size.record_bytes});
}
const IoChoice& Engine::io_choice() const { return impl_->io; }
const std::string& Engine::backend_choice() const { return impl_->choice; }

}  // namespace moepack
