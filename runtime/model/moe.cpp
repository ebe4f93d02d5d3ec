#include "runtime/model/moe.h"

#include <algorithm>
#include <limits>

namespace moepack {
namespace {

// Of add_routed.
constexpr std::size_t kRowsPerTask = 16;
constexpr std::size_t kColumnsPerTask = 64;
// Of a row that uses no expert.
constexpr std::size_t kNoPlace = std::numeric_limits<std::size_t>::max();

std::vector<ReadyExpert> take_ready(Compute& compute, ExpertStore::Batch& batch) {
  const StageScope stage(compute.times(), Stage::kExpertWait);
  return batch.take_ready();
}

// One piece of work: some rows of one projection of one expert.
struct RowTask {
  std::size_t group = 0;
  std::uint64_t row_begin = 0;
  std::uint64_t row_end = 0;
};

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
  compute.matmul(weights.router, u, tokens, scratch_.router_logits.data());
  return scratch_.router_logits.first(tokens * config_.num_experts);
}

std::span<const Assignment> MixtureOfExperts::choose(const RouterSpec& routing,
                                                     std::span<const RowRange> rows) {
  chosen_.clear();
  for (const RowRange& range : rows) {
    chosen_.reserve(chosen_.size() + range.count * config_.experts_per_token);
    route_rows(routing, scratch_.router_logits.data(), range, config_.num_experts,
               config_.experts_per_token, chosen_);
  }
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

// Groups the tokens by the expert they chose and gathers their inputs.
void MixtureOfExperts::sort_by_expert(const float* u, std::size_t tokens) {
  const std::size_t hidden = config_.hidden_size;
  const std::span<Assignment> sorted = scratch_.sorted.first(chosen_.size());
  std::copy(chosen_.begin(), chosen_.end(), sorted.begin());
  std::sort(sorted.begin(), sorted.end(), [](const Assignment& a, const Assignment& b) {
    return a.expert != b.expert ? a.expert < b.expert : a.token < b.token;
  });
  std::fill_n(scratch_.place_of.data(), tokens * config_.experts_per_token, kNoPlace);
  groups_ = {};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const Assignment& use = sorted[i];
    add_to_groups(use.expert, i);
    scratch_.place_of[std::size_t{use.token} * config_.experts_per_token + use.slot] = i;
    std::copy_n(u + use.token * hidden, hidden, gathered_.data() + i * hidden);
  }
}

// Gate, up and down of the groups whose experts are `ready`, all of them together so that many
// small experts keep every thread busy.
void MixtureOfExperts::compute_groups(Compute& compute, std::span<const Group> groups,
                                      std::span<const ExpertHandle> handles,
                                      std::span<const ReadyExpert> ready) {
  const Kernels& kernels = compute.kernels();
  const std::size_t hidden = config_.hidden_size;
  const std::size_t width = config_.expert_width;
  std::vector<RowTask> tasks;
  const auto split = [&](Projection projection) {
    tasks.clear();
    for (const ReadyExpert& expert : ready) {
      const std::size_t g = expert.index;
      const QMatrixView w = handles[g].layout->view(projection, handles[g].record);
      const std::uint64_t grain = compute.row_grain(w, groups[g].count);
      for (std::uint64_t row = 0; row < w.rows; row += grain) {
        tasks.push_back({g, row, std::min(w.rows, row + grain)});
      }
    }
  };
  split(Projection::kGate);
  compute.pool().parallel_for(
      tasks.size(), 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        for (std::size_t i = begin; i < end; ++i) {
          const RowTask& task = tasks[i];
          const Group& group = groups[task.group];
          const ExpertHandle& expert = handles[task.group];
          const float* x = gathered_.data() + group.first * hidden;
          float* gate = gate_.data() + group.first * width;
          float* up = up_.data() + group.first * width;
          kernels.matmul(expert.layout->view(Projection::kGate, expert.record), x, hidden,
                         group.count, task.row_begin, task.row_end, gate, width,
                         compute.scratch(worker));
          kernels.matmul(expert.layout->view(Projection::kUp, expert.record), x, hidden,
                         group.count, task.row_begin, task.row_end, up, width,
                         compute.scratch(worker));
          const std::size_t rows = task.row_end - task.row_begin;
          for (std::size_t t = 0; t < group.count; ++t) {
            float* g = gate + t * width + task.row_begin;
            kernels.swiglu(g, up + t * width + task.row_begin, g, rows);
          }
        }
      });
  split(Projection::kDown);
  compute.pool().parallel_for(
      tasks.size(), 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        for (std::size_t i = begin; i < end; ++i) {
          const RowTask& task = tasks[i];
          const Group& group = groups[task.group];
          const ExpertHandle& expert = handles[task.group];
          kernels.matmul(expert.layout->view(Projection::kDown, expert.record),
                         gate_.data() + group.first * width, width, group.count, task.row_begin,
                         task.row_end, results_.data() + group.first * hidden, hidden,
                         compute.scratch(worker));
        }
      });
}

// Experts are computed as they arrive. Each has rows of its own in results_, so that the order in
// which they come leaves no trace.
Status MixtureOfExperts::run_batch(Compute& compute, ExpertStore& store, std::uint32_t layer,
                                   std::span<const Group> groups) {
  std::vector<std::uint32_t> experts;
  experts.reserve(groups.size());
  for (const Group& group : groups) experts.push_back(group.expert);
  MOE_ASSIGN_OR_RETURN(ExpertStore::Batch batch, store.begin(layer, experts));
  while (true) {
    std::vector<ReadyExpert> ready = take_ready(compute, batch);
    if (ready.empty()) return Status::ok();
    leave_out_failed(groups, ready);
    compute_groups(compute, groups, batch.handles(), ready);
  }
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

void MixtureOfExperts::combine(Compute& compute, std::size_t tokens, float* out) {
  const std::size_t hidden = config_.hidden_size;
  const std::size_t top_k = config_.experts_per_token;
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      for (std::size_t k = 0; k < top_k; ++k) {
        const std::size_t place = scratch_.place_of[t * top_k + k];
        if (place == kNoPlace) continue;
        compute.kernels().axpy(scratch_.sorted[place].weight, results_.data() + place * hidden,
                               out + t * hidden, hidden);
      }
    }
  });
}

void MixtureOfExperts::add_shared(Compute& compute, const MoeWeights& weights, const float* u,
                                  std::size_t tokens, float* out) {
  if (!weights.has_shared) return;
  const StageScope stage(compute.times(), Stage::kSharedExpert);
  const std::size_t width = config_.shared_expert_width;
  const std::size_t hidden = config_.hidden_size;
  compute.matmul(weights.shared_gate, u, tokens, scratch_.shared_gate.data());
  compute.matmul(weights.shared_up, u, tokens, scratch_.shared_up.data());
  compute.kernels().swiglu(scratch_.shared_gate.data(), scratch_.shared_up.data(),
                           scratch_.shared_gate.data(), tokens * width);
  compute.matmul(weights.shared_down, scratch_.shared_gate.data(), tokens,
                 scratch_.shared_out.data());
  compute.matmul(weights.shared_expert_gate, u, tokens, scratch_.shared_weight.data());
  for (std::size_t t = 0; t < tokens; ++t) {
    compute.kernels().axpy(sigmoid(scratch_.shared_weight[t]),
                           scratch_.shared_out.data() + t * hidden, out + t * hidden, hidden);
  }
}

// All of groups_, as many at once as the store can hold.
Status MixtureOfExperts::run_groups(Compute& compute, ExpertStore& store, std::uint32_t layer) {
  failed_.clear();
  const std::size_t at_once = store.max_batch(layer);
  for (std::size_t first = 0; first < groups_.size(); first += at_once) {
    const std::size_t count = std::min(at_once, groups_.size() - first);
    MOE_RETURN_IF_ERROR(run_batch(compute, store, layer, std::span(groups_).subspan(first, count)));
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
                                 ExpertStore& store, const float* u, std::size_t tokens,
                                 float* out) {
  const StageScope stage(compute.times(), Stage::kExperts);
  sort_by_expert(u, tokens);
  MOE_RETURN_IF_ERROR(run_groups(compute, store, layer));
  combine(compute, tokens, out);
  add_shared(compute, weights, u, tokens, out);
  return Status::ok();
}

Status MixtureOfExperts::add_routed(Compute& compute, std::uint32_t layer, ExpertStore& store,
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
    MOE_RETURN_IF_ERROR(run_groups(compute, store, layer));
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
