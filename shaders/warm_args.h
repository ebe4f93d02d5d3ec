#ifndef MOEPACK_SHADERS_WARM_ARGS_H
#define MOEPACK_SHADERS_WARM_ARGS_H

#include "shaders/shared_types.h"

#define MOE_WARM_RANGES 8

MOE_SHADER_STRUCTS

/* Reads memory so that the device's cache holds it when the kernels behind the next barrier ask for it.
   Grid: any number of work groups, ranges. */
struct WarmArgs {
  MOE_ADDRESS(Words4) data[MOE_WARM_RANGES];
  MOE_ADDRESS(Words) sink;       /* 16 bytes; as good as never written */
  uint vectors[MOE_WARM_RANGES]; /* of 16 bytes */
};

MOE_SHADER_STRUCTS_END

#endif
