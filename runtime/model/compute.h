// What every step of the forward pass computes with: one kernel table, one thread pool, and scratch
// for each thread.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/weights/qformat.h"
#include "formats/weights/row_order.h"
#include "runtime/model/code_kernels.h"
#include "runtime/model/input_scratch.h"
#include "runtime/model/kernels.h"
#include "runtime/model/product_tasks.h"
#include "runtime/model/stage_times.h"
#include "runtime/model/thread_pool.h"

namespace moepack {

// One matrix that a stage multiplies its input with.
struct Product {
  const QMatrixView* w = nullptr;
  float* y = nullptr;  // [tokens, w->rows], contiguous
};

// The inputs of a product, [tokens, cols]: as floats, and as blocks where they were quantized.
struct RowInputs {
  const float* x = nullptr;  // contiguous; null where only blocks are needed
  // Of each token, all digits; null: products take floats.
  const InputBlock* const* blocks = nullptr;
  // Nothing is in the blocks: each thread has its own of them (Compute::multiply_rows).
  bool is_deferred = false;

  // Those of token `token` and of what follows.
  RowInputs from(std::size_t token, std::uint64_t cols) const {
    return {x == nullptr ? nullptr : x + token * cols, blocks == nullptr ? nullptr : blocks + token,
            is_deferred};
  }
};

// Where the codes of a row begin, of a panel those of its first row; null behind the last row.
inline const std::byte* codes_at(const QMatrixView& w, std::uint64_t row) {
  return row < w.rows ? slice_rows(w, row, 0).codes() : nullptr;
}

// One thread at a time calls it; its pool shares the work among the threads. kernels() and
// scratch(worker) may also be used inside the pool's tasks.
class Compute {
 public:
  // `scratch`: for each of `threads` (>= 1) threads as much as the widest matrix that will be
  // multiplied needs (matmul_scratch_floats); it outlives the object.
  // `inputs` likewise.
  Compute(const Kernels& kernels, std::size_t threads, std::span<float> scratch,
          const InputScratch& inputs = {});

  const Kernels& kernels() const { return *kernels_; }
  ThreadPool& pool() { return pool_; }
  const ThreadPool& pool() const { return pool_; }
  StageTimes& times() { return times_; }
  // Scratch of one worker of the pool, for Kernels::matmul.
  std::span<float> scratch(std::size_t worker) {
    return scratch_.subspan(worker * scratch_floats_, scratch_floats_);
  }

  // Whether products with matrices of this format take quantized inputs. That depends on nothing
  // else, so that a token's results do not depend on what is computed beside it.
  bool takes_blocks(const WeightFormat& format) const {
    return has_blocks() && kernels_->codes.supports(format);
  }
  bool has_blocks() const { return !inputs_.rows.empty(); }
  // Blocks from one token of `cols` inputs to the next.
  std::size_t token_stride(std::uint64_t cols) const {
    return moepack::token_stride(cols, inputs_.digits);
  }
  // Inputs [begin, end) of a token into its blocks. x: at input `begin`; begin is a multiple of
  // kInputGroup, end one too. blocks: of the token.
  void quantize_part(const float* x, std::size_t begin, std::size_t end, InputBlock* blocks) const {
    kernels_->codes.quantize(x, end - begin, inputs_.digits,
                             blocks + input_blocks(begin, inputs_.digits));
  }
  // x [tokens, cols] with its blocks, in scratch that the next call of this, of matmul or products
  // overwrites. x stays as it is as long as they are used: of few tokens nothing is done yet. No
  // product takes more tokens of them than there are.
  RowInputs quantize(const float* x, std::size_t cols, std::size_t tokens);
  // The same at once, in scratch of the caller's.
  RowInputs quantize_into(const float* x, std::size_t cols, std::size_t tokens,
                          const InputScratch& to);

  // y[t] = W x[t] for all rows, shared among the threads. x: [tokens, W.cols], y: [tokens, W.rows],
  // both contiguous.
  void matmul(const QMatrixView& w, const float* x, std::size_t tokens, float* y);

  // The same for several matrices of as many columns with one input, in one parallel region.
  void products(std::span<const Product> products, const float* x, std::size_t tokens);

  // Rows [begin, end) of y[t] = W x[t], in worker `worker` of a task of the pool's: the one way in
  // which a stage multiplies. begin is a multiple of kCodeRows. read_next: of CodeProduct.
  void multiply_rows(const QMatrixView& w, const RowInputs& x, std::size_t tokens,
                     std::uint64_t begin, std::uint64_t end, float* y, std::size_t worker,
                     const std::byte* read_next = nullptr) {
    if (x.blocks != nullptr && takes_blocks(w.format)) {
      std::array<const InputBlock*, kMostOwnTokens> own;
      const InputBlock* const* blocks = x.blocks;
      if (x.is_deferred) blocks = own_rows(x.blocks, tokens, worker, own);
      multiply_blocks(w, blocks, tokens, begin, end, y, w.rows, worker, read_next);
    } else {
      multiply_floats(w, x.x, tokens, begin, end, y, scratch(worker));
    }
  }

  // The same where the inputs are blocks and a token's outputs begin y_stride after the last one's.
  void multiply_blocks(const QMatrixView& w, const InputBlock* const* blocks, std::size_t tokens,
                       std::uint64_t begin, std::uint64_t end, float* y, std::size_t y_stride,
                       std::size_t worker, const std::byte* read_next = nullptr) {
    kernels_->codes.multiply(
        {w, blocks, inputs_.digits, tokens, begin, end, y, y_stride, scratch(worker), read_next});
  }

  // A product with W in a region of its own, as ProductTasks take it.
  ProductShape product_shape(const QMatrixView& w, std::size_t tokens) const;

 private:
  // What quantize() put off.
  struct DeferredInputs {
    const float* x = nullptr;
    std::size_t cols = 0;
    std::size_t tokens = 0;
    std::uint64_t number = 0;  // of the call
  };
  // Which of them a thread has in its own blocks; on a cache line of its own.
  struct alignas(64) OwnInputs {
    std::uint64_t number = 0;
  };
  // Where each token's blocks lie in `to`.
  void place_rows(std::size_t cols, std::size_t tokens, const InputScratch& to) const;
  // The worker's own blocks that stand for `rows`, which are made first where it has not got them.
  const InputBlock* const* own_rows(const InputBlock* const* rows, std::size_t tokens,
                                    std::size_t worker,
                                    std::array<const InputBlock*, kMostOwnTokens>& own);
  void multiply_floats(const QMatrixView& w, const float* x, std::size_t tokens,
                       std::uint64_t begin, std::uint64_t end, float* y,
                       std::span<float> scratch) const;

  const Kernels* kernels_;
  ThreadPool pool_;
  StageTimes times_;
  std::span<float> scratch_;  // [threads, scratch_floats_]
  std::size_t scratch_floats_;
  InputScratch inputs_;
  DeferredInputs deferred_;                  // the last; written between regions
  std::vector<OwnInputs> own_inputs_;        // of each thread
  std::vector<ProductTasks> product_tasks_;  // of products(); keeps its memory from call to call
};

// out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * factor, rows of `width`. out may be x. In float32, but
// a row whose sum of squares is beyond it in float64; with a value that is not finite some value of
// `out` is not finite either.
// Source: RMSNorm, arXiv 1910.07467.
void rms_norm(Compute& compute, const float* x, std::span<const float> factor, float eps,
              std::size_t rows, std::size_t width, float* out);
// x = x / sqrt(sum(x^2) + eps) * factor, n values in place; of large values the same holds.
void l2_norm(const Kernels& kernels, float eps, float factor, std::size_t n, float* x);

// x[t][i] += bias[i] for rows of bias.size() values; nothing where it is empty.
void add_bias(std::span<const float> bias, std::size_t rows, float* x);

// x = cap * tanh(x / cap) in place; nothing with a cap of 0.
void cap_logits(ThreadPool& pool, float cap, std::span<float> x);

inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
// log(1 + exp(x)) without overflow (x itself above 20, as PyTorch computes it).
float softplus(float x);
// In place over n values; the sum in double.
void softmax(float* x, std::size_t n);
// The same with one more value, `sink`, which takes its share of the sum and is dropped.
void softmax_with_sink(float sink, float* x, std::size_t n);

}  // namespace moepack
