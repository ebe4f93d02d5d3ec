#ifndef MOEPACK_SHADERS_MATMUL_ARGS_H
#define MOEPACK_SHADERS_MATMUL_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y[t][r] (+)= sum over c of W[r][c] * x[t][c]; grid {outputs / tile rows,
   rows / tile tokens} rounded up (matmul_tile.glsl). */
struct MatmulArgs {
  MOE_ADDRESS(Words) codes;   /* of W */
  MOE_ADDRESS(Halves) scales; /* affine formats */
  MOE_ADDRESS(Halves) biases; /* affine formats */
  MOE_ADDRESS(Halves) tables; /* weight_tables.h; formats without tables: 0 */
  MOE_ADDRESS(F32) x;         /* plain: [rows], x_stride floats apart; cooperative: what half_rows made */
  MOE_ADDRESS(F32) x_scales;  /* cooperative: [rows] */
  MOE_ADDRESS(F32) y;         /* [rows], y_stride floats apart */
  uint outputs;
  uint rows;     /* of the batch */
  uint x_stride; /* elements of x */
  uint y_stride;
  uint add;      /* 0: y is overwritten */
};

MOE_SHADER_STRUCTS_END

#endif
