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
    ProductShape shape = compute.product_shape(experts_[e].*matrix, experts_[e].tokens);
    shape.row_unit = kInputGroup;
    shape.region_work = work;
    const ProductTasks tasks(shape);
    for (std::size_t i = 0; i < tasks.count(); ++i) tasks_.push_back({tasks.at(i), e});
  }
}

RowInputs ExpertTasks::activated_inputs(const ExpertWork& expert) {
  return {expert.activated, expert.x.blocks == nullptr ? nullptr : expert.activated_rows};
}

void ExpertTasks::quantize_activated(const Compute& compute, const ExpertWork& expert,
                                     std::size_t token, const ProductTask& task) {
  const std::size_t width = expert.gate.rows;
  InputBlock* blocks = expert.activated_blocks + token * compute.token_stride(width);
  compute.quantize_part(expert.activated + token * width + task.row_begin, task.row_begin,
                        task.row_end, blocks);
  if (task.row_begin == 0) expert.activated_rows[token] = blocks;
}

std::uint64_t ExpertTasks::common_outputs(const Compute& compute) const {
  const std::size_t outputs = experts_.front().down.rows;
  const std::size_t share = outputs / (kOutputTasksPerThread * compute.pool().size());
  return align_up(std::clamp(share, kInputGroup, kMostOutputs), kInputGroup);
}

const std::byte* ExpertTasks::codes_behind(const Compute& compute, std::size_t task,
                                           std::size_t worker) const {
  const ThreadPool& pool = compute.pool();
  const std::size_t next = task + 1;
  if (next < pool.share_end(worker)) {
    const ExpertTask& task_behind = tasks_[next];
    const bool is_beside = task_behind.expert == experts_.size();
    return codes_at(is_beside ? *beside_.w : experts_[task_behind.expert].gate,
                    task_behind.row_begin);
  }
  const QMatrixView& down = experts_.front().down;
  const std::uint64_t outputs = common_outputs(compute);
  return codes_at(down, pool.share_of(div_up(down.rows, outputs), worker).begin * outputs);
}

void ExpertTasks::activate_rows(Compute& compute, std::size_t index, std::size_t worker) const {
  const ExpertTask& task = tasks_[index];
  const std::uint64_t begin = task.row_begin;
  const std::uint64_t end = task.row_end;
  const std::byte* const behind = codes_behind(compute, index, worker);
  if (task.expert == experts_.size()) {
    compute.multiply_rows(*beside_.w, beside_input_, beside_tokens_, begin, end, beside_.y, worker,
                          behind);
    return;
  }
  const ExpertWork& e = experts_[task.expert];
  const RowInputs x = e.x.from(task.token_begin, e.gate.cols);
  float* const activated = e.activated + task.token_begin * e.gate.rows;
  float* const raised = e.raised + task.token_begin * e.up.rows;
  compute.multiply_rows(e.gate, x, task.tokens(), begin, end, activated, worker,
                        codes_at(e.up, begin));
  compute.multiply_rows(e.up, x, task.tokens(), begin, end, raised, worker, behind);
  add_bias_columns(e.gate_bias, begin, end, task.tokens(), e.gate.rows, activated);
  add_bias_columns(e.up_bias, begin, end, task.tokens(), e.up.rows, raised);
  const bool is_quantized = e.x.blocks != nullptr && compute.takes_blocks(e.down.format);
  for (std::size_t t = task.token_begin; t < task.token_end; ++t) {
    float* gate = e.activated + t * e.gate.rows + begin;
    const float* up = e.raised + t * e.up.rows + begin;
    activate_values(compute.kernels(), e, up, gate, end - begin);
    if (is_quantized) quantize_activated(compute, e, t, task);
  }
}

void ExpertTasks::activate(Compute& compute) {
  split(compute, &ExpertWork::gate);
  if (beside_.w != nullptr) {
    tasks_.push_back({{0, beside_.w->rows, 0, beside_tokens_}, experts_.size()});
  }
  compute.pool().parallel_for(tasks_.size(), 1,
                              [&](std::size_t begin, std::size_t end, std::size_t worker) {
                                for (std::size_t i = begin; i < end; ++i) {
                                  activate_rows(compute, i, worker);
                                }
                              });
}

void ExpertTasks::project_rows(Compute& compute, const ExpertWork& expert, const ProductTask& task,
                               std::size_t worker, const std::byte* read_next) {
  const RowInputs x = activated_inputs(expert).from(task.token_begin, expert.down.cols);
  float* const result = expert.result + task.token_begin * expert.down.rows;
  compute.multiply_rows(expert.down, x, task.tokens(), task.row_begin, task.row_end, result, worker,
                        read_next);
  add_bias_columns(expert.down_bias, task.row_begin, task.row_end, task.tokens(), expert.down.rows,
                   result);
}

void ExpertTasks::project(Compute& compute) {
  split(compute, &ExpertWork::down);
  compute.pool().parallel_for(
      tasks_.size(), 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        for (std::size_t i = begin; i < end; ++i) {
          project_rows(compute, experts_[tasks_[i].expert], tasks_[i], worker, nullptr);
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
    const bool goes_on = begin / grain + 1 < pool.share_end(worker);
    const std::byte* const next_task = goes_on ? codes_at(experts_.front().down, end) : nullptr;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      const bool is_last = e + 1 == experts_.size();
      project_rows(compute, experts_[e], {begin, end, 0, experts_[e].tokens}, worker,
                   is_last ? next_task : codes_at(experts_[e + 1].down, begin));
    }
    then(begin, end);
  });
}

}  // namespace moepack
