#ifndef MOEPACK_SHADERS_SWIGLU_ARGS_H
#define MOEPACK_SHADERS_SWIGLU_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* act[i] = silu(gate[i]) * up[i]; any grid. act may be gate or up. */
struct SwigluArgs {
  MOE_ADDRESS(F32) gate;
  MOE_ADDRESS(F32) up;
  MOE_ADDRESS(F32) act;
  uint count;
};

MOE_SHADER_STRUCTS_END

#endif
