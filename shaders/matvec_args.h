#ifndef MOEPACK_SHADERS_MATVEC_ARGS_H
#define MOEPACK_SHADERS_MATVEC_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y[b][r] = W[r] . x[b], or that and what is added to it. Grid: work groups over the rows of W (any number), rows of
   the batch. Where cols is a multiple of 4, x, its rows and factor begin at multiples of 16 bytes. */
struct MatvecArgs {
  MOE_ADDRESS(Words) codes;   /* [rows] rows of codes or blocks */
  MOE_ADDRESS(Words) scales;  /* affine formats: [rows][cols / group] */
  MOE_ADDRESS(Words) biases;  /* the same */
  MOE_ADDRESS(HandedF32) x;   /* [batch][x_stride] */
  MOE_ADDRESS(F32) factor;    /* with a norm: [cols] */
  MOE_ADDRESS(HandedF32) y;   /* [batch][y_stride] */
  MOE_ADDRESS(HandedF32) added; /* with ADDS: [batch][y_stride], y itself or apart */
  MOE_ADDRESS(Words) indices; /* with INDEXED: [batch], the row of x that belongs to row b of y */
  MOE_ADDRESS(Halves) tables; /* formats with tables: shaders/weight_tables.h */
  uint rows;
  uint x_stride; /* floats */
  uint y_stride; /* floats */
  float eps;     /* of the norm */
};

MOE_SHADER_STRUCTS_END

#endif
