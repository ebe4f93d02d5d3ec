// Quantizes one matrix to an affine format, by one of the methods. Everything here is pure and may
// be called from any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quant/gptq.h"
#include "quant/input_statistics.h"

namespace moepack {

enum class QuantMethod : std::uint8_t {  // in the order of the ledger's list of methods
  kRtn,                                  // minimum and maximum of each group
  kClip,                                 // flash-moe's search
  kGrid,  // two-sided search, weighted by the inputs where they are known
  kGptq,  // kGrid, then GPTQ and refinement; kGrid where that is better on held-out inputs
};

// "rtn", "clip", "grid", "gptq".
std::string_view quant_method_name(QuantMethod method);
std::optional<QuantMethod> quant_method_from_name(std::string_view name);

struct QuantizedMatrix {
  AffineMatrix values;
  QuantMethod method;  // what was kept
  bool is_output_error;
  // Relative errors (convert/report/quality_ledger.h) of kRtn in the same format, and of `values`.
  float before;
  float after;
};

struct MatrixFormat {
  std::uint32_t bits = 4;
  std::size_t group_size = 64;
};

// w: [padded rows, cols], finite, of whose rows `rows` are real. `target` is what kGptq comes near
// to: w itself, or the weights that suit the inputs better (quant/expert_statistics.h). `inputs`
// may be unknown; kGptq is then done as kGrid. `factor` is that of inputs.hessian, shared by the
// matrices that read the same inputs; with nullptr, where the Hessian cannot be factored, kGptq is
// done as kGrid too.
QuantizedMatrix quantize_matrix(QuantMethod method, const Matrix& w, const Matrix& target,
                                std::size_t rows, const MatrixFormat& format,
                                const InputStatistics& inputs, const GptqFactor* factor);

// This number grows whenever a change makes the same input give other codes.
constexpr int kQuantizerVersion = 1;

// The damping at which factor_hessian starts.
constexpr float kGptqDamping = 0.1F;

}  // namespace moepack
