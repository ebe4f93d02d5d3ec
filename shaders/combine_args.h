#ifndef MOEPACK_SHADERS_COMBINE_ARGS_H
#define MOEPACK_SHADERS_COMBINE_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y[b] += sum over slots, in order, of weight * results[b][s]. Grid: work groups over the columns
   (any number), rows of the batch. */
struct CombineArgs {
  MOE_ADDRESS(Words2) records;  /* [experts] addresses; slots whose expert has 0 add nothing */
  MOE_ADDRESS(Choices) choices; /* [batch][slots] */
  MOE_ADDRESS(F32) results;     /* [batch][slots][y_stride] */
  MOE_ADDRESS(F32) y;           /* [batch][y_stride] */
  uint experts;
  uint slots;
  uint cols;
  uint y_stride; /* floats */
};

MOE_SHADER_STRUCTS_END

#endif
