#include "runtime/model/expert_tasks.h"

#include <algorithm>

#include "formats/base/bytes.h"
#include "runtime/model/code_kernels.h"

namespace moepack {
namespace {

// Of project_together().
constexpr std::size_t kMostOutputs = 128;
constexpr std::size_t kOutputTasksPerThread = 4;

// rows[t][i] += bias[i] for i in [begin, end) and all tokens; nothing without a bias.
void add_bias_columns(const float* bias, std::uint64_t begin, std::uint64_t end, std::size_t tokens,
                      std::uint64_t width, float* rows) {
  if (bias == nullptr) return;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::uint64_t i = begin; i < end; ++i) rows[t * width + i] += bias[i];
  }
}

void activate_values(const Kernels& kernels, const ExpertWork& expert, const float* up, float* gate,
                     std::size_t count) {
  switch (expert.activation) {
    case ExpertActivation::kSwiGlu:
      return kernels.swiglu(gate, up, gate, count);
    case ExpertActivation::kClampedSwiGlu:
      return kernels.clamped_swiglu(gate, up, expert.activation_limit, gate, count);
    case ExpertActivation::kGeGlu:
      return kernels.geglu(gate, up, gate, count);
  }
}

}  // namespace

void ExpertTasks::clear() {
  experts_.clear();
  beside_ = {};
}

void ExpertTasks::add_beside(const Product& product, const RowInputs& x, std::size_t tokens) {
  beside_ = product;
  beside_input_ = x;
  beside_tokens_ = tokens;
}

void ExpertTasks::split(const Compute& compute, QMatrixView ExpertWork::*matrix) {
  tasks_.clear();
  std::uint64_t work = 0;
  for (const ExpertWork& expert : experts_) {
    const QMatrixView& w = expert.*matrix;
    work += w.rows * w.cols * expert.tokens;
  }
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const QMatrixView& w = experts_[e].*matrix;
    const std::uint64_t grain =
        align_up(compute.row_grain(w, experts_[e].tokens, work), kInputGroup);
    for (std::uint64_t row = 0; row < w.rows; row += grain) {
      tasks_.push_back({e, row, std::min(w.rows, row + grain)});
    }
  }
}

RowInputs ExpertTasks::activated_inputs(const ExpertWork& expert) {
  return {expert.activated, expert.x.blocks == nullptr ? nullptr : expert.activated_rows};
}

void ExpertTasks::quantize_activated(const Compute& compute, const ExpertWork& expert,
                                     std::size_t token, const RowTask& task) {
  const std::size_t width = expert.gate.rows;
  InputBlock* blocks = expert.activated_blocks + token * compute.token_blocks(width);
  compute.quantize_part(expert.activated + token * width + task.begin, task.begin, task.end,
                        blocks);
  if (task.begin == 0) expert.activated_rows[token] = blocks;
}

std::uint64_t ExpertTasks::common_outputs(const Compute& compute) const {
  const std::size_t outputs = experts_.front().down.rows;
  const std::size_t share = outputs / (kOutputTasksPerThread * compute.pool().size());
  return align_up(std::clamp(share, kInputGroup, kMostOutputs), kInputGroup);
}

const std::byte* ExpertTasks::codes_behind(const Compute& compute, std::size_t task) const {
  const std::size_t next = compute.pool().probably_behind(task);
  if (next < tasks_.size()) {
    const RowTask& rows = tasks_[next];
    const bool is_beside = rows.expert == experts_.size();
    return codes_at(is_beside ? *beside_.w : experts_[rows.expert].gate, rows.begin);
  }
  return codes_at(experts_.front().down, (next - tasks_.size()) * common_outputs(compute));
}

void ExpertTasks::activate_rows(Compute& compute, std::size_t index, std::size_t worker) const {
  const RowTask& task = tasks_[index];
  const std::byte* const behind = codes_behind(compute, index);
  if (task.expert == experts_.size()) {
    compute.multiply_rows(*beside_.w, beside_input_, beside_tokens_, task.begin, task.end,
                          beside_.y, worker, behind);
    return;
  }
  const ExpertWork& e = experts_[task.expert];
  compute.multiply_rows(e.gate, e.x, e.tokens, task.begin, task.end, e.activated, worker,
                        codes_at(e.up, task.begin));
  compute.multiply_rows(e.up, e.x, e.tokens, task.begin, task.end, e.raised, worker, behind);
  add_bias_columns(e.gate_bias, task.begin, task.end, e.tokens, e.gate.rows, e.activated);
  add_bias_columns(e.up_bias, task.begin, task.end, e.tokens, e.up.rows, e.raised);
  const bool is_quantized = e.x.blocks != nullptr && compute.takes_blocks(e.down.format);
  for (std::size_t t = 0; t < e.tokens; ++t) {
    float* gate = e.activated + t * e.gate.rows + task.begin;
    const float* up = e.raised + t * e.up.rows + task.begin;
    activate_values(compute.kernels(), e, up, gate, task.end - task.begin);
    if (is_quantized) quantize_activated(compute, e, t, task);
  }
}

void ExpertTasks::activate(Compute& compute) {
  split(compute, &ExpertWork::gate);
  if (beside_.w != nullptr) tasks_.push_back({experts_.size(), 0, beside_.w->rows});
  compute.pool().parallel_for(tasks_.size(), 1,
                              [&](std::size_t begin, std::size_t end, std::size_t worker) {
                                for (std::size_t i = begin; i < end; ++i) {
                                  activate_rows(compute, i, worker);
                                }
                              });
}

void ExpertTasks::project_rows(Compute& compute, const ExpertWork& expert, std::uint64_t begin,
                               std::uint64_t end, std::size_t worker, const std::byte* read_next) {
  compute.multiply_rows(expert.down, activated_inputs(expert), expert.tokens, begin, end,
                        expert.result, worker, read_next);
  add_bias_columns(expert.down_bias, begin, end, expert.tokens, expert.down.rows, expert.result);
}

void ExpertTasks::project(Compute& compute) {
  split(compute, &ExpertWork::down);
  compute.pool().parallel_for(
      tasks_.size(), 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        for (std::size_t i = begin; i < end; ++i) {
          const RowTask& task = tasks_[i];
          project_rows(compute, experts_[task.expert], task.begin, task.end, worker, nullptr);
        }
      });
}

void ExpertTasks::project_together(Compute& compute,
                                   FunctionRef<void(std::size_t, std::size_t)> then) {
  ThreadPool& pool = compute.pool();
  const std::uint64_t outputs = experts_.front().down.rows;
  const std::uint64_t grain = common_outputs(compute);
  pool.parallel_for(outputs, grain, [&](std::size_t begin, std::size_t end, std::size_t worker) {
    // Behind the last expert's rows come the first one's of the next task.
    const std::byte* const next_task =
        codes_at(experts_.front().down, pool.probably_behind(begin / grain) * grain);
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      const bool is_last = e + 1 == experts_.size();
      project_rows(compute, experts_[e], begin, end, worker,
                   is_last ? next_task : codes_at(experts_[e + 1].down, begin));
    }
    then(begin, end);
  });
}

}  // namespace moepack
