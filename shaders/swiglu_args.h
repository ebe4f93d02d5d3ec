#ifndef MOEPACK_SHADERS_SWIGLU_ARGS_H
#define MOEPACK_SHADERS_SWIGLU_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* act[i] = silu(act[i]) * up[i]. Grid: work groups over the values (any number). */
struct SwigluArgs {
  MOE_ADDRESS(F32) act; /* [count]: of the gate, and the result */
  MOE_ADDRESS(F32) up;  /* [count] */
  uint count;
};

MOE_SHADER_STRUCTS_END

#endif
