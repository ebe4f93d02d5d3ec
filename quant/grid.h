// Scales and biases of an affine matrix without looking across groups: plain rounding, flash-moe's
// clipping, and a two-sided search.
#pragma once

#include <span>
#include <vector>

#include "quant/affine_matrix.h"

namespace moepack {

enum class GridMethod {
  kMinMax,    // s = (max - min) / (2^bits - 1), b = min
  kClip,      // the same range shrunk towards the mean by 20 ratios from 0.7 to 1
  kTwoSided,  // both ends shrunk on their own, each pair refitted; kClip's ranges among them
};

// Fills scale, bias and codes of `q` from w [padded rows, cols]. Every row and group takes, among
// the method's candidates, the one with the least sum over columns of importance * error^2. Scale
// and bias are rounded to bf16 (nearest even) before codes are chosen. `importance` has one number
// >= 0 for each column, e.g. the mean square of that input (the Hessian's diagonal); an empty one
// stands for equal numbers. Pure; any number of threads.
// Source: field survey of llama.cpp's imatrix and k-quants searches.
void choose_grid(GridMethod method, const Matrix& w, std::span<const float> importance,
                 AffineMatrix& q);

// Chooses the codes nearest to w for the scales and biases that `q` has.
void round_to_grid(const Matrix& w, AffineMatrix& q);

}  // namespace moepack
