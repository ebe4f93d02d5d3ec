#ifndef MOEPACK_SHADERS_DOWN_ARGS_H
#define MOEPACK_SHADERS_DOWN_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y[b] = added[b] + sum over slots, in order, of weight * (down act[b][s]), or each slot's product by itself.
   Grid: work groups over blocks of BLOCK_ROWS rows of down (all of them), rows of the batch. Slots
   whose expert is not in the table or of another kind add nothing; of single products they stay
   as they are. act begins at a multiple of 16 bytes where cols is a multiple of 4. */
struct DownArgs {
  MOE_ADDRESS(Words2) records;  /* [experts] addresses; 0: not there */
  MOE_ADDRESS(Words) kinds;     /* with BY_KIND: [experts] which layout a record has */
  MOE_ADDRESS(Choices) choices; /* [batch][slots] */
  MOE_ADDRESS(HandedF32) act;   /* [batch][slots][act_stride] */
  MOE_ADDRESS(HandedF32) y;     /* [batch][y_stride]; single products: [batch][slots][y_stride] */
  MOE_ADDRESS(HandedF32) added; /* but for single products: [batch][y_stride], y itself or apart */
  MOE_ADDRESS(Halves) tables;   /* formats with tables: shaders/weight_tables.h */
  MOE_ADDRESS(F32) bias;        /* with ADDS_BIAS: [experts][rows], of down */
  uint experts;
  uint kind; /* with BY_KIND: records of this one are computed */
  uint slots; /* of a row of choices and of act */
  uint first_slot;
  uint rows;  /* of down */
  uint codes; /* bytes from the start of a record */
  uint scales;
  uint biases;
  uint act_stride; /* floats; a multiple of 4 */
  uint y_stride;   /* floats */
};

MOE_SHADER_STRUCTS_END

#endif
