// Experts that are computed together, routed and shared ones alike: the rows of all their matrices
// are one list of tasks, so that many small experts keep every thread busy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/config/layer_spec.h"
#include "formats/weights/qformat.h"
#include "runtime/model/compute.h"
#include "runtime/model/function_ref.h"
#include "runtime/model/product_tasks.h"

namespace moepack {

// H hidden size, M width of the expert. All borrowed, contiguous.
struct ExpertWork {
  QMatrixView gate;  // [M, H], like up
  QMatrixView up;
  QMatrixView down;  // [H, M]
  std::size_t tokens = 0;
  RowInputs x;  // [tokens, H]
  // [M], [M] and [H], added to the products of each token; null: none.
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
  ExpertActivation activation = ExpertActivation::kSwiGlu;
  float activation_limit = 0;
  float* activated = nullptr;  // [tokens, M]: what `activation` makes of gate x and up x
  float* raised = nullptr;     // [tokens, M]: up x
  float* result = nullptr;     // [tokens, H]: down activated
  // Blocks of `activated`, where x has blocks: [tokens, Compute::token_stride(M)], and where those
  // of a token begin.
  InputBlock* activated_blocks = nullptr;
  const InputBlock** activated_rows = nullptr;
};

// One thread at a time calls it; the work is shared among the threads of `compute`. The lists keep
// their memory from call to call.
class ExpertTasks {
 public:
  void clear();
  bool empty() const { return experts_.empty(); }
  void add(const ExpertWork& expert) { experts_.push_back(expert); }
  // One more product of x [tokens, w.cols] in the region of activate(); `w` outlives it.
  void add_beside(const Product& product, const RowInputs& x, std::size_t tokens);

  // `activated` of all experts, in one region. A task makes whole groups of kInputGroup values of
  // each token, or the last, shorter one.
  void activate(Compute& compute);
  // `result` of all experts, in one region: many tokens.
  void project(Compute& compute);
  // The same in tasks of the same outputs of all experts, each followed by then(begin, end) of
  // these outputs: few tokens, whose sum needs no region of its own so. At least one expert.
  void project_together(Compute& compute, FunctionRef<void(std::size_t, std::size_t)> then);

 private:
  // A part of one expert's; of the product beside them where expert == experts_.size().
  struct ExpertTask : ProductTask {
    std::size_t expert = 0;
  };

  void split(const Compute& compute, QMatrixView ExpertWork::*matrix);
  static RowInputs activated_inputs(const ExpertWork& expert);
  static void quantize_activated(const Compute& compute, const ExpertWork& expert,
                                 std::size_t token, const ProductTask& task);
  // Of project_together(): outputs of all experts in one task.
  std::uint64_t common_outputs(const Compute& compute) const;
  // What `worker`, which has task `task` of activate(), probably reads behind it: the next task's
  // of its share, and behind that its first of project_together().
  const std::byte* codes_behind(const Compute& compute, std::size_t task, std::size_t worker) const;
  void activate_rows(Compute& compute, std::size_t task, std::size_t worker) const;
  static void project_rows(Compute& compute, const ExpertWork& expert, const ProductTask& task,
                           std::size_t worker, const std::byte* read_next);

  std::vector<ExpertWork> experts_;
  std::vector<ExpertTask> tasks_;
  Product beside_;  // none: w is null
  RowInputs beside_input_;
  std::size_t beside_tokens_ = 0;
};

}  // namespace moepack
