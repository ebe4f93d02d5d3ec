#include "runtime/model/routing_recorder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace moepack {
namespace {

std::uint32_t microseconds(double seconds) {
  constexpr double kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp(std::round(1e6 * seconds), 0.0, kMost));
}

}  // namespace

TraceModel trace_model(std::string name, std::uint64_t fingerprint, const ModelConfig& config,
                       const PackManifest& pack) {
  TraceModel model{.name = std::move(name),
                   .fingerprint = fingerprint,
                   .num_layers = pack.num_layers,
                   .num_experts = pack.num_experts,
                   .experts_per_token = config.experts_per_token};
  for (std::uint32_t layer = 0; layer < pack.num_layers; ++layer) {
    const bool has_experts = pack.experts_of(layer) > 0;
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      const std::uint64_t bytes = has_experts ? pack.layout_of(layer, e).record_bytes : 0;
      const auto known = std::find(model.record_bytes.begin(), model.record_bytes.end(), bytes);
      model.size_of.push_back(static_cast<std::uint16_t>(known - model.record_bytes.begin()));
      if (known == model.record_bytes.end()) model.record_bytes.push_back(bytes);
    }
  }
  if (model.record_bytes.size() == 1) model.size_of.clear();
  return model;
}

Result<std::unique_ptr<RoutingRecorder>> RoutingRecorder::create(const std::filesystem::path& file,
                                                                 const TraceModel& model) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<TraceWriter> writer, TraceWriter::create(file, model));
  return std::unique_ptr<RoutingRecorder>(new RoutingRecorder(std::move(writer)));
}

RoutingRecorder::~RoutingRecorder() { (void)finish(); }

Status RoutingRecorder::finish() {
  if (std::exchange(has_pass_, false)) MOE_RETURN_IF_ERROR(writer_->add(pass_));
  return writer_->flush();
}

Status RoutingRecorder::begin_pass(std::size_t tokens) {
  if (std::exchange(has_pass_, false)) MOE_RETURN_IF_ERROR(writer_->add(pass_));
  has_pass_ = true;
  pass_.tokens = static_cast<std::uint32_t>(tokens);
  pass_.head_us = 0;
  pass_.layers.clear();
  is_before_layers_ = true;
  layer_start_ = Clock::now();
  return Status::ok();
}

void RoutingRecorder::begin_layer() {
  const Clock::time_point now = Clock::now();
  if (std::exchange(is_before_layers_, false)) {
    add_head(std::chrono::duration<double>(now - layer_start_).count());
  }
  layer_start_ = now;
}

void RoutingRecorder::routed(const ExpertStoreStats& stats) {
  routed_ = Clock::now();
  before_ = stats;
}

void RoutingRecorder::end_layer(std::uint32_t layer, std::span<const ExpertGroup> groups,
                                const ExpertStoreStats& stats) {
  const double waited = stats.wait_seconds - before_.wait_seconds;
  TraceLayer record{
      .layer = layer,
      .mix_us = microseconds(std::chrono::duration<double>(routed_ - layer_start_).count()),
      .expert_us = microseconds(seconds_since(routed_) - waited),
      .wait_us = microseconds(waited),
      .read_us = microseconds(stats.read_seconds - before_.read_seconds),
      .misses = static_cast<std::uint32_t>(stats.misses - before_.misses)};
  for (const ExpertGroup& group : groups) {
    record.uses.push_back(
        {.expert = group.expert, .tokens = static_cast<std::uint32_t>(group.count)});
  }
  pass_.layers.push_back(std::move(record));
}

void RoutingRecorder::end_dense_layer() { add_head(seconds_since(layer_start_)); }

void RoutingRecorder::add_head(double seconds) { pass_.head_us += microseconds(seconds); }

}  // namespace moepack
