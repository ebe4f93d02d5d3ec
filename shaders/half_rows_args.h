#ifndef MOEPACK_SHADERS_HALF_ROWS_ARGS_H
#define MOEPACK_SHADERS_HALF_ROWS_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y[row] = x[row] / scales[row] as 16-bit floats, with zeros from `cols` to y_stride; scales[row] is
   the power of two that brings the row's largest magnitude into [2^14, 2^15), 1 for rows of zeros
   and for rows that are not finite. Grid {rows}, whole subgroups. */
struct HalfRowsArgs {
  MOE_ADDRESS(F32) x;      /* [rows], x_stride floats apart */
  MOE_ADDRESS(Words) y;    /* [rows], y_stride 16-bit floats apart, 16-byte aligned */
  MOE_ADDRESS(F32) scales; /* [rows] */
  uint cols;
  uint x_stride;
  uint y_stride; /* a multiple of 8, at least cols */
};

MOE_SHADER_STRUCTS_END

#endif
