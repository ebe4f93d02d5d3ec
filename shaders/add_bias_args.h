#ifndef MOEPACK_SHADERS_ADD_BIAS_ARGS_H
#define MOEPACK_SHADERS_ADD_BIAS_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y[b] += bias. Grid: work groups over the columns (any number), rows of the batch. */
struct AddBiasArgs {
  MOE_ADDRESS(F32) bias; /* [cols] */
  MOE_ADDRESS(F32) y;    /* [batch][cols] */
  uint cols;
};

MOE_SHADER_STRUCTS_END

#endif
