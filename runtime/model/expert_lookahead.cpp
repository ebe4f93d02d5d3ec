#include "runtime/model/expert_lookahead.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace moepack {
namespace {

// A prompt that chooses each expert so often in the mean leaves hardly one out.
constexpr std::size_t kUsesOfSureExpert = 4;

std::size_t rows_of(std::span<const RowRange> ranges) {
  std::size_t rows = 0;
  for (const RowRange& range : ranges) rows += range.count;
  return rows;
}

}  // namespace

ExpertLookahead::ExpertLookahead(const ModelConfig& config, Activations& scratch,
                                 ExpertStore& store, std::uint32_t per_token, bool is_tried)
    : config_(config),
      scratch_(scratch),
      store_(store),
      most_(std::min(most_ahead(per_token), config.num_experts)),
      chosen_(std::min(per_token, config.num_experts)),
      probabilities_(config.num_experts) {
  experts_.reserve(most_ahead(per_token));
  if (is_tried && per_token > 0) trial_.emplace();
}

void ExpertLookahead::begin_pass(std::size_t tokens) {
  is_on_ = !trial_.has_value() || tokens > kLookaheadRows || trial_->reads_ahead();
}

void ExpertLookahead::end_pass(std::size_t tokens, double seconds) {
  if (trial_.has_value() && tokens <= kLookaheadRows) trial_->note(tokens, seconds);
}

void ExpertLookahead::expect(Compute& compute, const LayerWeights& next, std::uint32_t index,
                             std::span<const RowRange> rows, const float* hidden) {
  experts_.clear();
  layer_ = index;
  const std::size_t count = rows_of(rows);
  if (!is_on_ || count == 0 || most_ == 0 || !next.moe.has_experts) return;
  if (count <= kLookaheadRows) {
    expect_of_router(compute, next, rows, hidden);
  } else if (count * config_.experts_per_token >= kUsesOfSureExpert * config_.num_experts) {
    experts_.resize(most_);
    std::iota(experts_.begin(), experts_.end(), 0U);
  }
}

void ExpertLookahead::expect_of_router(Compute& compute, const LayerWeights& next,
                                       std::span<const RowRange> rows, const float* hidden) {
  const std::size_t width = config_.hidden_size;
  const std::vector<float>& factor =
      next.moe.router_norm.empty() ? next.post_norm : next.moe.router_norm;
  std::size_t count = 0;
  for (const RowRange& range : rows) {
    rms_norm(compute, hidden + range.first * width, factor, config_.rms_norm_eps, range.count,
             width, scratch_.ahead_normed.data() + count * width);
    count += range.count;
  }
  compute.matmul(next.moe.router, scratch_.ahead_normed.data(), count,
                 scratch_.ahead_logits.data());
  add_bias(next.moe.router_bias, count, scratch_.ahead_logits.data());
  for (std::size_t row = 0; row < count; ++row) {
    route_row(next.moe.routing, scratch_.ahead_logits.data() + row * config_.num_experts, 0,
              probabilities_, chosen_);
    for (const Assignment& use : chosen_) {
      const bool is_there =
          std::find(experts_.begin(), experts_.end(), use.expert) != experts_.end();
      if (!is_there) experts_.push_back(use.expert);
    }
  }
}

// No room, or no memory: the layer itself asks again and says so.
void ExpertLookahead::start() {
  std::optional<ExpertStore::Batch>& place = batches_[layer_ % batches_.size()];
  if (experts_.empty() || place.has_value()) return;
  Result<ExpertStore::Batch> batch = store_.begin_ahead(layer_, experts_);
  if (batch.is_ok()) place.emplace(std::move(batch).value());
  experts_.clear();
}

void ExpertLookahead::release(std::uint32_t index) { batches_[index % batches_.size()].reset(); }

void ExpertLookahead::release_all() {
  experts_.clear();
  for (auto& batch : batches_) batch.reset();
}

}  // namespace moepack
