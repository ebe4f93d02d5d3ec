#include "runtime/model/compute.h"

#include <algorithm>

#include "formats/base/bytes.h"
#include "runtime/model/code_kernels.h"
#include "runtime/model/restored_panels.h"

namespace moepack {
namespace {

// Multiply-adds of a task: usually at least the first; the second where a matrix has too few rows
// to give every thread that much, and below it a task costs less than handing it over.
constexpr std::uint64_t kTaskWork = std::uint64_t{512} * 1024;
constexpr std::uint64_t kLeastTaskWork = std::uint64_t{32} * 1024;
// Of a large matrix each thread gets so many tasks, unless a task would have more work than this
// many of the usual ones and the last to end keep the others waiting.
constexpr std::uint64_t kTasksPerThread = 8;
constexpr std::uint64_t kMostTaskWork = 8;
constexpr std::uint64_t kRowGroup = 2 * kCodeRows;
// Of many tokens a task takes a part, whose blocks stay in a second-level cache, and more rows
// instead, as long as their weights stay there too: inputs are read less often from what all
// threads share (docs/decisions.md, section 89).
constexpr std::size_t kManyTokens = 256;
constexpr std::size_t kTaskTokens = 64;
constexpr std::uint64_t kMostTaskRows = 256;
// Inputs below which quantizing them costs less than handing it over.
constexpr std::size_t kQuantizedValues = std::size_t{16} * 1024;
// Logits that one task caps.
constexpr std::size_t kCappedValues = std::size_t{4} * 1024;

std::uint64_t work_per_row(const QMatrixView& w, std::size_t tokens) {
  return std::max<std::uint64_t>(1, w.cols * tokens);
}

// For values whose squares float32 cannot hold; of finite values the sum is finite.
double wide_square_sum(const float* x, std::size_t n) {
  double sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

void wide_rms_norm(const float* x, std::span<const float> factor, float eps, float* out) {
  const std::size_t width = factor.size();
  const double mean = wide_square_sum(x, width) / static_cast<double>(width);
  const double scale = 1.0 / std::sqrt(mean + eps);
  for (std::size_t i = 0; i < width; ++i) out[i] = static_cast<float>(x[i] * scale * factor[i]);
}

}  // namespace

Compute::Compute(const Kernels& kernels, std::size_t threads, std::span<float> scratch,
                 const InputScratch& inputs)
    : kernels_(&kernels),
      pool_(threads),
      scratch_(scratch),
      scratch_floats_(scratch.size() / threads),
      inputs_(inputs) {}

RowInputs Compute::quantize_into(const float* x, std::size_t cols, std::size_t tokens,
                                 const InputScratch& to) {
  const std::size_t blocks = token_blocks(cols);
  const auto quantize_rows = [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      to.rows[t] = to.blocks.data() + t * blocks;
      quantize_part(x + t * cols, 0, cols, to.blocks.data() + t * blocks);
    }
  };
  const std::size_t grain = std::max<std::size_t>(1, kQuantizedValues / cols);
  pool_.parallel_for(tokens, grain, quantize_rows);
  return {x, to.rows.data()};
}

void Compute::multiply_floats(const QMatrixView& w, const float* x, std::size_t tokens,
                              std::uint64_t begin, std::uint64_t end, float* y,
                              std::span<float> scratch) const {
  const auto multiply = [&](const QMatrixView& rows, std::uint64_t first, std::uint64_t last,
                            float* to, std::span<float> left) {
    kernels_->matmul(rows, x, w.cols, tokens, first, last, to, w.rows, left);
  };
  if (w.format.row_order == RowOrder::kRows) return multiply(w, begin, end, y, scratch);
  multiply_restored(w, begin, end, y, scratch, multiply);
}

std::uint64_t Compute::row_grain(const QMatrixView& w, std::size_t tokens) const {
  const std::uint64_t per_row = work_per_row(w, tokens);
  const std::uint64_t threads = pool_.size();
  const std::uint64_t usual = align_up(std::max<std::uint64_t>(1, kTaskWork / per_row), kRowGroup);
  const std::uint64_t share = align_up(w.rows / (kTasksPerThread * threads), kRowGroup);
  const std::uint64_t grain = std::clamp(share, usual, kMostTaskWork * usual);
  if (w.rows >= grain * threads) return grain;
  // Whole blocks of the kernels: a task of single rows takes several times as long.
  const std::uint64_t least = std::max<std::uint64_t>(1, kLeastTaskWork / per_row);
  return std::min(grain, align_up(std::max(least, div_up(w.rows, threads)), kCodeRows));
}

std::uint64_t Compute::row_grain(const QMatrixView& w, std::size_t tokens,
                                 std::uint64_t work) const {
  const bool is_plenty = work >= kTasksPerThread * pool_.size() * kMostTaskWork * kTaskWork;
  if (!is_plenty) return row_grain(w, tokens);
  const std::uint64_t largest = kMostTaskWork * kTaskWork / work_per_row(w, tokens);
  return align_up(std::max<std::uint64_t>(1, largest), kRowGroup);
}

void Compute::matmul(const QMatrixView& w, const float* x, std::size_t tokens, float* y) {
  const Product product{&w, y};
  products({&product, 1}, x, tokens);
}

Compute::TaskShape Compute::task_shape(const QMatrixView& w, std::size_t tokens) const {
  const std::uint64_t rows = row_grain(w, tokens);
  if (!takes_blocks(w.format) || tokens < kManyTokens) return {rows, tokens};
  const std::size_t parts = div_up(tokens, kTaskTokens);
  return {std::max(rows, std::min(rows * parts, kMostTaskRows)), div_up(tokens, parts)};
}

void Compute::products(std::span<const Product> products, const float* x, std::size_t tokens) {
  if (tokens == 0) return;
  struct Task {
    const Product* product;
    std::uint64_t row;
    std::uint64_t rows;
    std::size_t token;
    std::size_t tokens;
  };
  const auto tasks_of = [&](const Product& product) {
    const TaskShape shape = task_shape(*product.w, tokens);
    return div_up(product.w->rows, shape.rows) * div_up(tokens, shape.tokens);
  };
  RowInputs inputs{.x = x};
  if (std::any_of(products.begin(), products.end(),
                  [&](const Product& product) { return takes_blocks(product.w->format); })) {
    inputs = quantize(x, products.front().w->cols, tokens);
  }
  std::size_t tasks = 0;
  for (const Product& product : products) tasks += tasks_of(product);
  const auto task_at = [&](std::size_t i) -> Task {
    const Product* product = products.data();
    for (; i >= tasks_of(*product); ++product) i -= tasks_of(*product);
    const std::uint64_t all = product->w->rows;
    const TaskShape shape = task_shape(*product->w, tokens);
    const std::uint64_t row = i % div_up(all, shape.rows) * shape.rows;
    const std::size_t token = i / div_up(all, shape.rows) * shape.tokens;
    return {product, row, std::min(shape.rows, all - row), token,
            std::min(shape.tokens, tokens - token)};
  };
  const auto codes_behind = [&](std::size_t i) -> const std::byte* {
    const std::size_t behind = pool_.probably_behind(i);
    if (behind >= tasks) return nullptr;
    const Task task = task_at(behind);
    return codes_at(*task.product->w, task.row);
  };
  pool_.parallel_for(tasks, 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
    for (std::size_t i = begin; i < end; ++i) {
      const Task task = task_at(i);
      const QMatrixView& w = *task.product->w;
      multiply_rows(w, inputs.from(task.token, w.cols), task.tokens, task.row, task.row + task.rows,
                    task.product->y + task.token * w.rows, worker, codes_behind(i));
    }
  });
}

void rms_norm(Compute& compute, const float* x, std::span<const float> factor, float eps,
              std::size_t rows, std::size_t width, float* out) {
  for (std::size_t r = 0; r < rows; ++r) {
    const float* in = x + r * width;
    float* to = out + r * width;
    const float sum = compute.kernels().dot(in, in, width);
    if (!std::isfinite(sum)) {
      wide_rms_norm(in, factor.first(width), eps, to);
      continue;
    }
    const float scale = 1.0F / std::sqrt(sum / static_cast<float>(width) + eps);
    for (std::size_t i = 0; i < width; ++i) to[i] = in[i] * scale * factor[i];
  }
}

void l2_norm(const Kernels& kernels, float eps, float factor, std::size_t n, float* x) {
  const float sum = kernels.dot(x, x, n);
  if (!std::isfinite(sum)) {
    const double wide = factor / std::sqrt(wide_square_sum(x, n) + eps);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] * wide);
    return;
  }
  float scale = 1.0F / std::sqrt(sum + eps);
  scale *= factor;
  for (std::size_t i = 0; i < n; ++i) x[i] *= scale;
}

void cap_logits(ThreadPool& pool, float cap, std::span<float> x) {
  if (cap == 0) return;
  pool.parallel_for(x.size(), kCappedValues, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t i = begin; i < end; ++i) x[i] = cap * std::tanh(x[i] / cap);
  });
}

void add_bias(std::span<const float> bias, std::size_t rows, float* x) {
  for (std::size_t t = 0; t < rows && !bias.empty(); ++t) {
    for (std::size_t i = 0; i < bias.size(); ++i) x[t * bias.size() + i] += bias[i];
  }
}

float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

void softmax(float* x, std::size_t n) {
  const float top = *std::max_element(x, x + n);
  double sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - top);
    sum += x[i];
  }
  const auto scale = static_cast<float>(1.0 / sum);
  for (std::size_t i = 0; i < n; ++i) x[i] *= scale;
}

void softmax_with_sink(float sink, float* x, std::size_t n) {
  const float top = std::max(sink, *std::max_element(x, x + n));
  double sum = std::exp(sink - top);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - top);
    sum += x[i];
  }
  const auto scale = static_cast<float>(1.0 / sum);
  for (std::size_t i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace moepack
