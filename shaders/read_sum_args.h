#ifndef MOEPACK_SHADERS_READ_SUM_ARGS_H
#define MOEPACK_SHADERS_READ_SUM_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

struct ReadSumArgs {
  MOE_ADDRESS(Words4) data; /* [vectors] */
  MOE_ADDRESS(Words) sums;  /* [work groups]: so that no read can be left out */
  uint vectors;             /* of 16 bytes */
};

MOE_SHADER_STRUCTS_END

#endif
