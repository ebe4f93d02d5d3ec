#include "runtime/model/input_digits.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "formats/weights/row_order.h"

namespace moepack {
namespace {

constexpr std::size_t kLeftInputs = 256;    // of which what is left is formed at a time
constexpr std::size_t kTogether = 32;       // tokens whose digits are multiplied in one call
constexpr std::size_t kPartialSums = 4096;  // of such a call

// What block `block` leaves of its inputs.
void leave(const float* x, const InputBlock& block, float* left) {
  for (std::size_t i = 0; i < kInputGroup; ++i) {
    left[i] = std::fma(-block.scale, static_cast<float>(block.codes[i]), x[i]);
  }
}

// y[t] for rows [begin, end) of few tokens, whose digits are `inputs` one after the other.
void multiply_pairs(const CodeKernels& kernels, const QMatrixView& w,
                    std::span<const InputBlock* const> inputs, std::uint64_t begin,
                    std::uint64_t end, float* y, std::size_t y_stride, std::span<float> scratch) {
  std::array<float, kPartialSums> sums;
  const std::uint64_t most = kPartialSums / inputs.size() / kCodeRows * kCodeRows;
  for (std::uint64_t row = begin; row < end; row += most) {
    const std::uint64_t rows = std::min(most, end - row);
    kernels.multiply(slice_rows(w, row, rows), inputs.data(), inputs.size(), 0, rows, sums.data(),
                     rows, scratch);
    for (std::size_t t = 0; t < inputs.size() / kMostDigits; ++t) {
      const float* const first = sums.data() + kMostDigits * t * rows;
      float* const out = y + t * y_stride + row;
      for (std::size_t r = 0; r < rows; ++r) out[r] = first[r] + first[rows + r];
    }
  }
}

}  // namespace

void quantize_digits(const CodeKernels& kernels, std::size_t digits, const float* x,
                     std::size_t begin, std::size_t end, std::size_t cols, InputBlock* blocks) {
  InputBlock* const first = blocks + begin / kInputGroup;
  kernels.quantize(x, end - begin, first);
  if (digits < kMostDigits) return;
  InputBlock* const second = first + input_blocks(cols);
  std::array<float, kLeftInputs> left;
  for (std::size_t c = 0; c < end - begin; c += kLeftInputs) {
    const std::size_t count = std::min(kLeftInputs, end - begin - c);
    for (std::size_t i = 0; i < count; i += kInputGroup) {
      leave(x + c + i, first[(c + i) / kInputGroup], left.data() + i);
    }
    kernels.quantize(left.data(), count, second + c / kInputGroup);
  }
}

void multiply_digits(const CodeKernels& kernels, std::size_t digits, const QMatrixView& w,
                     const InputBlock* const* x, std::size_t tokens, std::uint64_t begin,
                     std::uint64_t end, float* y, std::size_t y_stride, std::span<float> scratch) {
  if (digits < kMostDigits) {
    return kernels.multiply(w, x, tokens, begin, end, y, y_stride, scratch);
  }
  const std::size_t blocks = input_blocks(w.cols);
  std::array<const InputBlock*, kMostDigits * kTogether> inputs;
  for (std::size_t first = 0; first < tokens; first += kTogether) {
    const std::size_t count = std::min(kTogether, tokens - first);
    for (std::size_t t = 0; t < count; ++t) {
      inputs[kMostDigits * t] = x[first + t];
      inputs[kMostDigits * t + 1] = x[first + t] + blocks;
    }
    multiply_pairs(kernels, w, std::span(inputs).first(kMostDigits * count), begin, end,
                   y + first * y_stride, y_stride, scratch);
  }
}

}  // namespace moepack
