#include "quant/quantize_matrix.h"

#include <array>
#include <cmath>
#include <vector>

#include "quant/grid.h"
#include "quant/refine.h"

namespace moepack {
namespace {

constexpr std::array<std::string_view, 4> kNames{"rtn", "clip", "grid", "gptq"};

GridMethod grid_of(QuantMethod method) {
  if (method == QuantMethod::kRtn) return GridMethod::kMinMax;
  return method == QuantMethod::kClip ? GridMethod::kClip : GridMethod::kTwoSided;
}

std::vector<float> importance_of(QuantMethod method, const InputStatistics& inputs) {
  const bool weighted =
      inputs.is_known && (method == QuantMethod::kGrid || method == QuantMethod::kGptq);
  if (!weighted) return {};
  return {inputs.hessian.diagonal().begin(), inputs.hessian.diagonal().end()};
}

// The energy to which errors are relative.
double whole_energy(const Matrix& w, const InputStatistics& inputs) {
  if (!inputs.is_known) return static_cast<double>(w.squaredNorm());
  if (inputs.wanted.size() > 0) return static_cast<double>(inputs.wanted.squaredNorm());
  return output_energy(w, inputs);
}

double error_energy(const AffineMatrix& q, const Matrix& w, const InputStatistics& inputs) {
  Matrix off;
  stored_minus(q, w, off);
  if (!inputs.is_known) return static_cast<double>(off.squaredNorm());
  if (inputs.wanted.size() == 0) return output_energy(off, inputs);
  off += w;
  Matrix outputs(off.rows(), inputs.held_out.cols());
  multiply(off, inputs.held_out, outputs);
  return static_cast<double>((outputs - inputs.wanted).squaredNorm());
}

float relative(double error, double whole) {
  return whole > 0 ? static_cast<float>(std::sqrt(error / whole)) : 0.0F;
}

}  // namespace

std::string_view quant_method_name(QuantMethod method) {
  return kNames[static_cast<std::size_t>(method)];
}

std::optional<QuantMethod> quant_method_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<QuantMethod>(i);
  }
  return std::nullopt;
}

QuantizedMatrix quantize_matrix(QuantMethod method, const Matrix& w, const Matrix& target,
                                std::size_t rows, const MatrixFormat& format,
                                const InputStatistics& inputs, const GptqFactor* factor) {
  const auto cols = static_cast<std::size_t>(w.cols());
  const double whole = whole_energy(w, inputs);
  AffineMatrix plain(rows, cols, format.bits, format.group_size);
  choose_grid(GridMethod::kMinMax, w, {}, plain);
  const double before = error_energy(plain, w, inputs);
  const bool compensate = method == QuantMethod::kGptq && inputs.is_known && factor != nullptr;
  const QuantMethod simple = method == QuantMethod::kGptq ? QuantMethod::kGrid : method;
  QuantizedMatrix out{.values = std::move(plain),
                      .method = simple,
                      .is_output_error = inputs.is_known,
                      .before = relative(before, whole),
                      .after = relative(before, whole)};
  if (method == QuantMethod::kRtn) return out;
  choose_grid(grid_of(simple), w, importance_of(simple, inputs), out.values);
  const double error = error_energy(out.values, w, inputs);
  out.after = relative(error, whole);
  if (!compensate) return out;
  AffineMatrix q = out.values;
  if (&target != &w) choose_grid(grid_of(simple), target, importance_of(simple, inputs), q);
  gptq_codes(target, *factor, q);
  refine(target, inputs.hessian, {}, q);
  const double compensated = error_energy(q, w, inputs);
  // An error below zero comes from a Hessian that is none.
  if (!(compensated < error) || compensated < 0) return out;
  out.values = std::move(q);
  out.method = QuantMethod::kGptq;
  out.after = relative(compensated, whole);
  return out;
}

}  // namespace moepack
