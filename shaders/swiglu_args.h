#ifndef MOEPACK_SHADERS_SWIGLU_ARGS_H
#define MOEPACK_SHADERS_SWIGLU_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* act[i] = silu(gate[i]) * up[i], or another activation (expert_activation.h); any grid. act may be gate
   or up. Specialization constants: 0 threads of a work group, 1 the activation, 2 its limit. */
struct SwigluArgs {
  MOE_ADDRESS(F32) gate;
  MOE_ADDRESS(F32) up;
  MOE_ADDRESS(F32) act;
  uint count;
};

MOE_SHADER_STRUCTS_END

#endif
