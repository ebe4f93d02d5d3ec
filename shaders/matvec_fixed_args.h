#ifndef MOEPACK_SHADERS_MATVEC_FIXED_ARGS_H
#define MOEPACK_SHADERS_MATVEC_FIXED_ARGS_H

#include "shaders/shared_types.h"

/* Matrices of one product, and what their addresses are multiples of. */
#define MOE_FIXED_MATRICES 4
#define MOE_FIXED_UNIT 256

MOE_SHADER_STRUCTS

/* Products of up to four matrices of one format and width with the same rows of inputs in fixed point,
   or one product and what is added to it. Grid: of one matrix any number of work groups, of several those that take
   all rows of the first in TURNS turns, then those of the second …; rows of the batch. */
struct MatvecFixedArgs {
  MOE_ADDRESS(Words) base;    /* what codes, scales and biases count from, in MOE_FIXED_UNIT bytes */
  MOE_ADDRESS(HandedF32) x;   /* [batch][COLS], rows at multiples of 16 bytes */
  MOE_ADDRESS(F32) factor;    /* with a norm: [COLS] */
  MOE_ADDRESS(HandedF32) y;   /* of the first matrix: [batch][y_stride] */
  MOE_ADDRESS(Words) indices; /* with INDEXED: [batch], the row of x that belongs to row b of y */
  MOE_ADDRESS(Halves) tables; /* formats with tables: shaders/weight_tables.h */
  uint codes[MOE_FIXED_MATRICES];
  uint scales[MOE_FIXED_MATRICES]; /* affine formats */
  uint biases[MOE_FIXED_MATRICES];
  uint rows[MOE_FIXED_MATRICES];   /* 0: there are no more matrices */
  uint y_stride;                     /* floats */
  int added_at;                      /* with ADDS: floats behind y, 0: y itself is added to */
};

MOE_SHADER_STRUCTS_END

#endif
