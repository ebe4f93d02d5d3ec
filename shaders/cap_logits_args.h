#ifndef MOEPACK_SHADERS_CAP_LOGITS_ARGS_H
#define MOEPACK_SHADERS_CAP_LOGITS_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* logits[i] = cap * tanh(logits[i] / cap); any grid. Infinities become cap and -cap, NaN stays.
   Specialization constant: 0 threads of a work group. */
struct CapLogitsArgs {
  MOE_ADDRESS(F32) logits;
  uint count;
  float cap; /* above 0 */
};

MOE_SHADER_STRUCTS_END

#endif
