#ifndef MOEPACK_SHADERS_ARGMAX_ARGS_H
#define MOEPACK_SHADERS_ARGMAX_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

struct Largest {
  float value;
  uint id;         /* of equal values the lowest; 0 where no value is a number */
  uint not_finite; /* whether any value of the row is infinite or NaN */
};

#ifndef __cplusplus
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer LargestOnes { Largest v[]; };
#endif

/* The largest of each row of logits, in two dispatches: `argmax` over parts of a row, grid: parts,
   rows; behind a barrier `argmax_merge` over these, grid: rows. Specialization constant: 0 threads of
   a work group. */
struct ArgmaxArgs {
  MOE_ADDRESS(F32) logits;        /* [rows]: [width] */
  MOE_ADDRESS(LargestOnes) found; /* [rows, parts]: out of argmax */
  MOE_ADDRESS(LargestOnes) best;  /* out of argmax_merge, [rows] */
  uint width;
  uint stride; /* floats from row to row */
  uint parts;
};

MOE_SHADER_STRUCTS_END

#endif
