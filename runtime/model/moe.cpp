#include "runtime/model/moe.h"

#include <algorithm>
#include <array>
#include <limits>

#include "formats/base/bytes.h"

namespace moepack {
namespace {

// Rows whose experts one task chooses.
constexpr std::size_t kRowsPerChoice = 4;
// Of add_routed.
constexpr std::size_t kRowsPerTask = 16;
constexpr std::size_t kColumnsPerTask = 64;
// Of the sums over a token's experts: columns that are summed at once, and in one task.
constexpr std::size_t kSummedColumns = 256;
constexpr std::size_t kColumnsPerSumTask = 2048;
// Uses of experts up to which their sums are made where their last products are.
constexpr std::size_t kFewUses = 64;
// Tokens up to which gathering inputs costs less than handing it over.
constexpr std::size_t kFewGathered = 16;
// Records still to come when the disk may be given other work.
constexpr std::size_t kFewMissing = 1;
// Of a row that uses no expert.
constexpr std::size_t kNoPlace = std::numeric_limits<std::size_t>::max();

std::vector<ReadyExpert> take_ready(Compute& compute, ExpertStore::Batch& batch) {
  const StageScope stage(compute.times(), Stage::kExpertWait);
  return batch.take_ready();
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(const ModelConfig& config, Activations& scratch)
    : config_(config),
      scratch_(scratch),
      gathered_(scratch.gathered),
      gate_(scratch.gate),
      up_(scratch.up),
      results_(scratch.results) {}

std::span<const float> MixtureOfExperts::route_logits(Compute& compute, const MoeWeights& weights,
                                                      const float* u, std::size_t tokens) {
  float* logits = scratch_.router_logits.data();
  compute.matmul(weights.router, u, tokens, logits);
  add_bias(weights.router_bias, tokens, logits);
  return scratch_.router_logits.first(tokens * config_.num_experts);
}

// `route_row_of`: a row's experts, called with its place in choosing_, the thread, its
// probabilities and what to fill.
template <typename RouteRow>
std::span<const Assignment> MixtureOfExperts::choose_rows(Compute& compute,
                                                          std::span<const RowRange> rows,
                                                          const RouteRow& route_row_of) {
  const std::size_t experts = config_.num_experts;
  const std::size_t top_k = config_.experts_per_token;
  choosing_.clear();
  for (const RowRange& range : rows) {
    for (std::size_t i = 0; i < range.count; ++i) {
      choosing_.push_back(static_cast<std::uint32_t>(range.first + i));
    }
  }
  chosen_.resize(choosing_.size() * top_k);
  probabilities_.resize(compute.pool().size() * experts);
  compute.pool().parallel_for(
      choosing_.size(), kRowsPerChoice,
      [&](std::size_t begin, std::size_t end, std::size_t worker) {
        const auto scratch = std::span(probabilities_).subspan(worker * experts, experts);
        for (std::size_t i = begin; i < end; ++i) {
          route_row_of(i, worker, scratch, std::span(chosen_).subspan(i * top_k, top_k));
        }
      });
  return chosen_;
}

std::span<const Assignment> MixtureOfExperts::choose(Compute& compute, const Routing& routing,
                                                     std::span<const RowRange> rows) {
  return choose_rows(
      compute, rows,
      [&](std::size_t i, std::size_t, std::span<float> scratch, std::span<Assignment> chosen) {
        const std::uint32_t row = choosing_[i];
        route_row(routing, scratch_.router_logits.data() + row * scratch.size(), row, scratch,
                  chosen);
      });
}

std::span<const Assignment> MixtureOfExperts::choose_cached(
    Compute& compute, const Routing& routing, std::span<const RowRange> rows,
    const CacheAwareRouting& car, std::span<const std::uint8_t> is_resident) {
  ranked_.resize(compute.pool().size() * car.among);
  std::size_t count = 0;
  for (const RowRange& range : rows) count += range.count;
  unchanged_.assign(count, 0);
  (void)choose_rows(compute, rows,
                    [&](std::size_t i, std::size_t worker, std::span<float> scratch,
                        std::span<Assignment> chosen) {
                      const std::uint32_t row = choosing_[i];
                      unchanged_[i] = route_row_cached(
                          routing, scratch_.router_logits.data() + row * scratch.size(), row,
                          car.always, is_resident, scratch,
                          std::span(ranked_).subspan(worker * car.among, car.among), chosen);
                    });
  agreement_.choices += chosen_.size();
  for (const std::uint32_t unchanged : unchanged_) agreement_.unchanged += unchanged;
  return chosen_;
}

// The use at `place` of the gathered inputs goes to the last group or opens the next.
void MixtureOfExperts::add_to_groups(std::uint32_t expert, std::size_t place) {
  if (groups_.empty() || groups_.back().expert != expert) {
    groups_ = scratch_.groups.first(groups_.size() + 1);
    groups_.back() = {.expert = expert, .first = place, .count = 0};
  }
  ++groups_.back().count;
}

// Groups the tokens by the expert they chose: by expert, then token.
void MixtureOfExperts::sort_by_expert(std::size_t tokens) {
  starts_.assign(config_.num_experts + 1, 0);
  for (const Assignment& use : chosen_) ++starts_[use.expert + 1];
  for (std::size_t e = 0; e < config_.num_experts; ++e) starts_[e + 1] += starts_[e];
  const std::span<Assignment> sorted = scratch_.sorted.first(chosen_.size());
  std::fill_n(scratch_.place_of.data(), tokens * config_.experts_per_token, kNoPlace);
  // chosen_ is by token, which therefore stays the second key.
  for (const Assignment& use : chosen_) {
    const std::size_t place = starts_[use.expert]++;
    sorted[place] = use;
    scratch_.place_of[std::size_t{use.token} * config_.experts_per_token + use.slot] = place;
  }
  groups_ = {};
  for (std::size_t i = 0; i < sorted.size(); ++i) add_to_groups(sorted[i].expert, i);
}

// Makes the inputs of every group contiguous; those of a single token stay where they are.
void MixtureOfExperts::gather(Compute& compute, const float* u) {
  const std::size_t hidden = config_.hidden_size;
  const auto copy = [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t g = begin; g < end; ++g) {
      const Group& group = groups_[g];
      for (std::size_t i = group.first; group.count > 1 && i < group.first + group.count; ++i) {
        std::copy_n(u + scratch_.sorted[i].token * hidden, hidden, gathered_.data() + i * hidden);
      }
    }
  };
  compute.pool().parallel_for(groups_.size(), chosen_.size() <= kFewGathered ? groups_.size() : 1,
                              copy);
}

// The blocks of every group's inputs, which stay where they are.
void MixtureOfExperts::gather_blocks(const RowInputs& u) {
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    scratch_.gathered_rows[i] = u.blocks[scratch_.sorted[i].token];
  }
}

// Whether a matrix that meets the experts' inputs takes them as floats.
bool MixtureOfExperts::needs_floats(const Compute& compute, std::span<const ExpertHandle> handles) {
  return std::any_of(handles.begin(), handles.end(), [&](const ExpertHandle& handle) {
    return !compute.takes_blocks(handle.layout->of(Projection::kGate).format) ||
           !compute.takes_blocks(handle.layout->of(Projection::kUp).format);
  });
}

// Adds an expert of the pack, with the inputs that were gathered or, of a single token, in `u`.
void MixtureOfExperts::add_group(const Compute& compute, const MoeWeights& weights,
                                 const Group& group, const ExpertHandle& handle,
                                 const RowInputs& u) {
  const std::size_t hidden = config_.hidden_size;
  const std::size_t width = config_.expert_width;
  const bool is_in_place = u.x != nullptr && group.count == 1;
  RowInputs x{.x = is_in_place ? u.x + scratch_.sorted[group.first].token * hidden
                               : gathered_.data() + group.first * hidden};
  ExpertWork work{.gate = handle.layout->view(Projection::kGate, handle.record),
                  .up = handle.layout->view(Projection::kUp, handle.record),
                  .down = handle.layout->view(Projection::kDown, handle.record),
                  .tokens = group.count,
                  .x = x,
                  .activation = weights.activation,
                  .activation_limit = weights.activation_limit,
                  .activated = gate_.data() + group.first * width,
                  .raised = up_.data() + group.first * width,
                  .result = results_.data() + group.first * hidden};
  if (u.blocks != nullptr) {
    work.x.blocks = scratch_.gathered_rows.data() + group.first;
    work.x.is_deferred = u.is_deferred;
    work.activated_blocks =
        scratch_.expert_blocks.data() + group.first * compute.token_stride(width);
    work.activated_rows = scratch_.expert_rows.data() + group.first;
  }
  if (!weights.gate_bias.empty()) {
    work.gate_bias = weights.gate_bias.data() + group.expert * width;
    work.up_bias = weights.up_bias.data() + group.expert * width;
    work.down_bias = weights.down_bias.data() + group.expert * hidden;
  }
  tasks_.add(work);
}

void MixtureOfExperts::add_shared_work(const MoeWeights& weights, const RowInputs& u,
                                       std::size_t tokens) {
  ExpertWork work{.gate = weights.shared_gate,
                  .up = weights.shared_up,
                  .down = weights.shared_down,
                  .tokens = tokens,
                  .x = u,
                  .activation = weights.activation,
                  .activation_limit = weights.activation_limit,
                  .activated = scratch_.shared_gate.data(),
                  .raised = scratch_.shared_up.data(),
                  .result = scratch_.shared_out.data()};
  if (u.blocks != nullptr) {
    work.activated_blocks = scratch_.shared_blocks.data();
    work.activated_rows = scratch_.shared_rows.data();
  }
  tasks_.add(work);
  if (!weights.has_shared_gate) return;
  tasks_.add_beside({&weights.shared_expert_gate, scratch_.shared_weight.data()}, u, tokens);
}

// Experts are computed as they arrive, those that are ready together. Each has rows of its own in
// results_, so that the order in which they come leaves no trace. The shared expert goes with the
// first, or ahead of all when none is there yet.
Status MixtureOfExperts::run_batch(Compute& compute, ExpertStore& store, std::uint32_t layer,
                                   std::span<const Group> groups, Sums& sums) {
  experts_.clear();
  for (const Group& group : groups) experts_.push_back(group.expert);
  MOE_ASSIGN_OR_RETURN(ExpertStore::Batch batch, store.begin(layer, experts_));
  const std::span<const ExpertHandle> handles = batch.handles();
  if (!sums.is_gathered && needs_floats(compute, handles)) {
    gather(compute, sums.u.x);
    sums.is_gathered = true;
  }
  const bool has_resident = std::any_of(handles.begin(), handles.end(),
                                        [](const ExpertHandle& h) { return h.was_resident; });
  if (!has_resident) run_ready(compute, {}, {}, {}, sums);
  const bool is_last = groups.data() + groups.size() == groups_.data() + groups_.size();
  while (true) {
    std::vector<ReadyExpert> ready = take_ready(compute, batch);
    if (ready.empty()) return Status::ok();
    if (is_last && batch.missing() <= kFewMissing) sums.last_reads();
    leave_out_failed(groups, ready);
    run_ready(compute, groups, handles, ready, sums);
  }
}

// The groups whose experts are `ready`, and the shared expert if it was not computed yet.
void MixtureOfExperts::run_ready(Compute& compute, std::span<const Group> groups,
                                 std::span<const ExpertHandle> handles,
                                 std::span<const ReadyExpert> ready, Sums& sums) {
  tasks_.clear();
  for (const ReadyExpert& expert : ready) {
    add_group(compute, *sums.weights, groups[expert.index], handles[expert.index], sums.u);
  }
  if (sums.shared != nullptr) add_shared_work(*sums.shared, sums.shared_u, sums.tokens);
  sums.shared = nullptr;
  if (tasks_.empty()) return;
  tasks_.activate(compute);
  const bool is_whole = ready.size() == groups_.size() && sums.out != nullptr;
  if (!is_whole || !sums.weights->is_plain_sum() || chosen_.size() > kFewUses)
    return tasks_.project(compute);
  tasks_.project_together(compute, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = 0; t < sums.tokens; ++t) add_sum(compute, sums, t, begin, end);
  });
  sums.is_done = true;
}

// Takes the experts without a record out of `ready`: their rows of results_ become zero.
void MixtureOfExperts::leave_out_failed(std::span<const Group> groups,
                                        std::vector<ReadyExpert>& ready) {
  for (const ReadyExpert& expert : ready) {
    if (expert.status.is_ok()) continue;
    const Group& group = groups[expert.index];
    const std::size_t hidden = config_.hidden_size;
    std::fill_n(results_.data() + group.first * hidden, group.count * hidden, 0.0F);
    failed_.push_back({group, expert.status});
  }
  std::erase_if(ready, [](const ReadyExpert& expert) { return !expert.status.is_ok(); });
}

// out[t] += the sum over the experts of token t, in the order of rank, then the shared one; columns
// [begin, end).
void MixtureOfExperts::add_sum(const Compute& compute, const Sums& sums, std::size_t t,
                               std::size_t begin, std::size_t end) const {
  const Kernels& kernels = compute.kernels();
  const std::size_t hidden = config_.hidden_size;
  const std::span<const std::size_t> places =
      std::span(scratch_.place_of)
          .subspan(t * config_.experts_per_token, config_.experts_per_token);
  std::array<float, kSummedColumns> sum;
  for (std::size_t first = begin; first < end; first += kSummedColumns) {
    const std::size_t count = std::min(kSummedColumns, end - first);
    std::fill_n(sum.data(), count, 0.0F);
    for (const std::size_t place : places) {
      if (place == kNoPlace) continue;
      kernels.axpy(scratch_.sorted[place].weight, results_.data() + place * hidden + first,
                   sum.data(), count);
    }
    if (sums.has_shared) {
      kernels.axpy(shared_factor(sums.has_shared_gate, t),
                   scratch_.shared_out.data() + t * hidden + first, sum.data(), count);
    }
    float* out = sums.out + t * hidden + first;
    for (std::size_t i = 0; i < count; ++i) out[i] += sum[i];
  }
}

// sum = the routed experts of token t, in the order of rank.
void MixtureOfExperts::sum_results(const Compute& compute, std::size_t t, float* sum) const {
  const std::size_t hidden = config_.hidden_size;
  std::fill_n(sum, hidden, 0.0F);
  for (std::size_t k = 0; k < config_.experts_per_token; ++k) {
    const std::size_t place = scratch_.place_of[t * config_.experts_per_token + k];
    if (place == kNoPlace) continue;
    compute.kernels().axpy(scratch_.sorted[place].weight, results_.data() + place * hidden, sum,
                           hidden);
  }
}

// out[t] becomes what a layer with norms or a scale makes of it, of `sum`, the routed experts of
// token t, which is overwritten, and of its shared expert, which is computed. Rows of [tokens, H].
void MixtureOfExperts::join_row(Compute& compute, const MoeWeights& weights, std::size_t t,
                                float* sum, float* out) const {
  const std::size_t hidden = config_.hidden_size;
  const float eps = config_.rms_norm_eps;
  const auto norm = [&](const std::vector<float>& factor, float* row) {
    if (!factor.empty()) rms_norm(compute, row, factor, eps, 1, hidden, row);
  };
  norm(weights.routed_output_norm, sum);
  if (weights.has_shared) {
    float* const shared = scratch_.shared_out.data() + t * hidden;
    norm(weights.shared_output_norm, shared);
    compute.kernels().axpy(shared_factor(weights.has_shared_gate, t), shared, sum, hidden);
  }
  norm(weights.output_norm, sum);
  const float scale = weights.output_scale.empty() ? 1.0F : weights.output_scale.front();
  for (std::size_t i = 0; i < hidden; ++i) out[i] = (out[i] + sum[i]) * scale;
}

// The sums of all tokens; several tasks make a token's, so that few tokens keep all threads busy,
// where columns do not depend on each other.
void MixtureOfExperts::add_sums(Compute& compute, const Sums& sums) const {
  const std::size_t hidden = config_.hidden_size;
  if (!sums.weights->is_plain_sum()) {
    compute.pool().parallel_for(sums.tokens, 1,
                                [&](std::size_t begin, std::size_t end, std::size_t) {
                                  for (std::size_t t = begin; t < end; ++t) {
                                    float* const sum = scratch_.mixed.data() + t * hidden;
                                    sum_results(compute, t, sum);
                                    join_row(compute, *sums.weights, t, sum, sums.out + t * hidden);
                                  }
                                });
    return;
  }
  const std::size_t blocks = div_up(hidden, kSummedColumns);
  const std::size_t grain =
      sums.tokens < 2 * compute.pool().size() ? 1 : kColumnsPerSumTask / kSummedColumns;
  compute.pool().parallel_for(
      sums.tokens * blocks, grain, [&](std::size_t begin, std::size_t end, std::size_t) {
        for (std::size_t i = begin; i < end; ++i) {
          const std::size_t first = i % blocks * kSummedColumns;
          add_sum(compute, sums, i / blocks, first, std::min(hidden, first + kSummedColumns));
        }
      });
}

void MixtureOfExperts::finish(Compute& compute, const MoeWeights& weights, const float* routed,
                              const float* u, std::size_t tokens, float* out) {
  const StageScope stage(compute.times(), Stage::kExperts);
  const std::size_t hidden = config_.hidden_size;
  if (weights.has_shared) {
    tasks_.clear();
    const bool is_quantized = compute.takes_blocks(weights.shared_gate.format);
    add_shared_work(weights, is_quantized ? compute.quantize(u, hidden, tokens) : RowInputs{.x = u},
                    tokens);
    tasks_.activate(compute);
    tasks_.project(compute);
  }
  compute.pool().parallel_for(tokens, kRowsPerTask,
                              [&](std::size_t begin, std::size_t end, std::size_t) {
                                for (std::size_t t = begin; t < end; ++t) {
                                  float* const sum = scratch_.mixed.data() + t * hidden;
                                  if (routed == nullptr) {
                                    std::fill_n(sum, hidden, 0.0F);
                                  } else {
                                    std::copy_n(routed + t * hidden, hidden, sum);
                                  }
                                  join_row(compute, weights, t, sum, out + t * hidden);
                                }
                              });
}

// All of groups_, as many at once as the store can hold.
Status MixtureOfExperts::run_groups(Compute& compute, ExpertStore& store, std::uint32_t layer,
                                    Sums& sums) {
  failed_.clear();
  const std::size_t at_once = store.max_batch(layer);
  for (std::size_t first = 0; first < groups_.size(); first += at_once) {
    const std::size_t count = std::min(at_once, groups_.size() - first);
    const std::span<const Group> groups = std::span(groups_).subspan(first, count);
    MOE_RETURN_IF_ERROR(run_batch(compute, store, layer, groups, sums));
  }
  std::sort(failed_.begin(), failed_.end(), [](const FailedGroup& a, const FailedGroup& b) {
    return a.group.expert < b.group.expert;
  });
  return Status::ok();
}

std::vector<FailedRow> MixtureOfExperts::failed_rows() const {
  std::vector<FailedRow> rows;
  for (const FailedGroup& failed : failed_) {
    for (std::size_t i = 0; i < failed.group.count; ++i) {
      rows.push_back({scratch_.sorted[failed.group.first + i].token, failed.status});
    }
  }
  return rows;
}

Status MixtureOfExperts::forward(Compute& compute, const MoeWeights& weights, std::uint32_t layer,
                                 ExpertStore& store, const NetworkInputs& u, std::size_t tokens,
                                 float* out, FunctionRef<void()> last_reads) {
  const StageScope stage(compute.times(), Stage::kExperts);
  Sums sums{.u = {.x = u.routed},
            .shared_u = {.x = u.shared},
            .tokens = tokens,
            .out = out,
            .shared = weights.has_shared ? &weights : nullptr,
            .has_shared = weights.has_shared,
            .has_shared_gate = weights.has_shared_gate,
            .last_reads = last_reads,
            .weights = &weights};
  sort_by_expert(tokens);
  if (compute.has_blocks() && config_.hidden_size % kInputGroup == 0) {
    sums.u = compute.quantize(u.routed, config_.hidden_size, tokens);
    sums.shared_u = u.shared == u.routed ? sums.u
                                         : compute.quantize_into(u.shared, config_.hidden_size,
                                                                 tokens, scratch_.branch_scratch());
    sums.is_gathered = false;
    gather_blocks(sums.u);
  } else {
    gather(compute, u.routed);
  }
  MOE_RETURN_IF_ERROR(run_groups(compute, store, layer, sums));
  // No row uses an expert.
  if (sums.shared != nullptr) run_ready(compute, {}, {}, {}, sums);
  if (!sums.is_done) add_sums(compute, sums);
  return Status::ok();
}

Status MixtureOfExperts::add_routed(Compute& compute, const MoeWeights& weights,
                                    std::uint32_t layer, ExpertStore& store,
                                    std::span<const Assignment> sorted, const TokenInput& input,
                                    float* out, const std::function<void(std::size_t)>& done) {
  const std::size_t hidden = config_.hidden_size;
  const std::size_t at_once = scratch_.place_of.size();  // rows of the scratch
  for (std::size_t first = 0; first < sorted.size(); first += at_once) {
    const auto uses = sorted.subspan(first, std::min(at_once, sorted.size() - first));
    groups_ = {};
    for (std::size_t i = 0; i < uses.size(); ++i) add_to_groups(uses[i].expert, i);
    compute.pool().parallel_for(uses.size(), kRowsPerTask,
                                [&](std::size_t begin, std::size_t end, std::size_t) {
                                  for (std::size_t i = begin; i < end; ++i) {
                                    input(uses[i].token, gathered_.data() + i * hidden);
                                  }
                                });
    const auto nothing = [] {};
    Sums none{.last_reads = nothing, .weights = &weights};  // they are made below
    MOE_RETURN_IF_ERROR(run_groups(compute, store, layer, none));
    if (!failed_.empty()) return failed_.front().status;
    // A token may appear several times: threads share the columns, so that each sum keeps its
    // order.
    compute.pool().parallel_for(
        hidden, kColumnsPerTask, [&](std::size_t begin, std::size_t end, std::size_t) {
          for (std::size_t i = 0; i < uses.size(); ++i) {
            compute.kernels().axpy(uses[i].weight, results_.data() + i * hidden + begin,
                                   out + std::size_t{uses[i].token} * hidden + begin, end - begin);
          }
        });
    done(uses.size());
  }
  return Status::ok();
}

}  // namespace moepack
