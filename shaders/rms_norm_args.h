#ifndef MOEPACK_SHADERS_RMS_NORM_ARGS_H
#define MOEPACK_SHADERS_RMS_NORM_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y = x / sqrt(mean(x^2) + eps) * factor (arXiv 1910.07467), or added to y. Grid: rows. y may be x. Also of
   rows whose squares are beyond float32. Specialization constants: 0 threads of a work group, 1 whether y
   is added to. */
struct RmsNormArgs {
  MOE_ADDRESS(F32) x;      /* [rows]: [width] */
  MOE_ADDRESS(F32) factor; /* [width] */
  MOE_ADDRESS(F32) y;      /* out, [rows]: [width] */
  uint width;
  uint x_stride; /* floats from row to row */
  uint y_stride;
  float eps;
};

MOE_SHADER_STRUCTS_END

#endif
