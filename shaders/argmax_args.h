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

/* The largest of each row of logits: the work groups look at parts of the row, the last one to be done
   merges what they found. Grid: parts, rows. Specialization constant: 0 threads of a work group. */
struct ArgmaxArgs {
  MOE_ADDRESS(HandedF32) logits;  /* [rows]: [width] */
  MOE_ADDRESS(LargestOnes) found; /* work memory, [rows, parts] */
  MOE_ADDRESS(LargestOnes) best;  /* out, [rows] */
  MOE_ADDRESS(Words) arrived;     /* [rows], zero before the first use; left at zero */
  uint width;
  uint limit;  /* ids from here on are never the largest, but tell whether they are finite */
  uint stride; /* floats from row to row */
  uint parts;
};

MOE_SHADER_STRUCTS_END

#endif
