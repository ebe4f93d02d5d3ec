// How far stored values lie from those they were made of, and whether rounding explains it.
#pragma once

#include <cstdint>
#include <span>

#include "convert/source/stored_matrix.h"

namespace moepack {

struct RoundingError {
  std::uint64_t elements = 0;
  double error_squares = 0;   // sum over elements of (stored - source)^2
  double source_squares = 0;  // sum of source^2
  double largest = 0;         // |stored - source|

  // Elements beyond the limit, and the first of them.
  std::uint64_t beyond = 0;
  std::uint64_t first_element = 0;
  float first_source = 0;
  float first_stored = 0;
  double first_limit = 0;

  // sqrt(error_squares / source_squares); 0 for no error at all, infinite for one of nothing.
  double relative_rms() const;
  // Takes in a later piece of the same matrix, or another matrix.
  void add(const RoundingError& later);
};

// Compares one block, whose first element is `begin` of its matrix, with the decoded source.
// `limited`: elements are counted as beyond that rounding to nearest cannot have made:
//
// Plain formats of p significant bits: |stored - w| <= 2^-p |w|, and half the smallest subnormal.
//
// Affine, by MLX's rule (quant/affine.h), with N the highest code, S and B the stored scale and
// bias, u = 2^-p of the type they are stored in: scale and bias were rounded after the codes were
// chosen, the true ones are within u/(1-u) of the stored. A code c > 0 below N was rounded to
// nearest, so it is off by half a step. Code N may have been clipped: the rule moves the scale so
// that the extreme of larger magnitude, k steps from 0, is exact, k = round(edge / s) of the
// step s = range / N. The other extreme then lies at N s / (edge / k) steps; edge / s >= k - 1/2
// and, where the scale shrank, 2 k >= N + 1, so that is at most N 2k / (2k - 1) <= N + 1: one
// whole step beyond N. Together
//   |stored - w| <= h S / (1-u) + (c S + |B|) u / (1-u) + float32 rounding,  h = 1/2, or 1 at N.
void add_block(const DecodedBlock& stored, std::uint64_t begin, std::span<const float> source,
               bool limited, RoundingError& error);

}  // namespace moepack
