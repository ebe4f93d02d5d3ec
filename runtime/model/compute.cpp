#include "runtime/model/compute.h"

#include <algorithm>

#include "runtime/model/restored_panels.h"

namespace moepack {
namespace {

// Inputs below which quantizing them costs less than handing it over.
constexpr std::size_t kQuantizedValues = std::size_t{16} * 1024;
// Logits that one task caps.
constexpr std::size_t kCappedValues = std::size_t{4} * 1024;

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
      inputs_(inputs),
      own_inputs_(threads) {}

void Compute::place_rows(std::size_t cols, std::size_t tokens, const InputScratch& to) const {
  for (std::size_t t = 0; t < tokens; ++t) to.rows[t] = to.blocks.data() + t * token_stride(cols);
}

RowInputs Compute::quantize(const float* x, std::size_t cols, std::size_t tokens) {
  const bool is_deferred = !inputs_.own.empty() && pool_.size() > 1 && tokens <= kMostOwnTokens &&
                           tokens * cols <= kMostOwnValues;
  if (!is_deferred) return quantize_into(x, cols, tokens, inputs_);
  deferred_ = {x, cols, tokens, deferred_.number + 1};
  place_rows(cols, tokens, inputs_);
  return {x, inputs_.rows.data(), true};
}

const InputBlock* const* Compute::own_rows(const InputBlock* const* rows, std::size_t tokens,
                                           std::size_t worker,
                                           std::array<const InputBlock*, kMostOwnTokens>& own) {
  const std::size_t size = own_blocks(inputs_.digits);
  InputBlock* const blocks = inputs_.own.subspan(worker * size, size).data();
  if (own_inputs_[worker].number != deferred_.number) {
    own_inputs_[worker].number = deferred_.number;
    for (std::size_t t = 0; t < deferred_.tokens; ++t) {
      quantize_part(deferred_.x + t * deferred_.cols, 0, deferred_.cols,
                    blocks + t * token_stride(deferred_.cols));
    }
  }
  for (std::size_t t = 0; t < tokens; ++t) own[t] = blocks + (rows[t] - inputs_.blocks.data());
  return own.data();
}

RowInputs Compute::quantize_into(const float* x, std::size_t cols, std::size_t tokens,
                                 const InputScratch& to) {
  place_rows(cols, tokens, to);
  const auto quantize_rows = [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      quantize_part(x + t * cols, 0, cols, to.blocks.data() + t * token_stride(cols));
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

ProductShape Compute::product_shape(const QMatrixView& w, std::size_t tokens) const {
  return {.rows = w.rows,
          .cols = w.cols,
          .tokens = tokens,
          .takes_blocks = takes_blocks(w.format),
          .threads = pool_.size()};
}

void Compute::matmul(const QMatrixView& w, const float* x, std::size_t tokens, float* y) {
  const Product product{&w, y};
  products({&product, 1}, x, tokens);
}

void Compute::products(std::span<const Product> products, const float* x, std::size_t tokens) {
  RowInputs inputs{.x = x};
  if (std::any_of(products.begin(), products.end(),
                  [&](const Product& product) { return takes_blocks(product.w->format); })) {
    inputs = quantize(x, products.front().w->cols, tokens);
  }
  product_tasks_.clear();
  std::size_t count = 0;
  for (const Product& product : products) {
    product_tasks_.emplace_back(product_shape(*product.w, tokens));
    count += product_tasks_.back().count();
  }
  struct Task : ProductTask {
    const Product* product;
  };
  const auto task_at = [&](std::size_t i) -> Task {
    std::size_t p = 0;
    for (; i >= product_tasks_[p].count(); ++p) i -= product_tasks_[p].count();
    return {product_tasks_[p].at(i), &products[p]};
  };
  const auto codes_behind = [&](std::size_t i, std::size_t worker) -> const std::byte* {
    if (i + 1 >= pool_.share_end(worker)) return nullptr;
    const Task task = task_at(i + 1);
    return codes_at(*task.product->w, task.row_begin);
  };
  pool_.parallel_for(count, 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
    for (std::size_t i = begin; i < end; ++i) {
      const Task task = task_at(i);
      const QMatrixView& w = *task.product->w;
      multiply_rows(w, inputs.from(task.token_begin, w.cols), task.tokens(), task.row_begin,
                    task.row_end, task.product->y + task.token_begin * w.rows, worker,
                    codes_behind(i, worker));
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
