#ifndef MOEPACK_SHADERS_EMBED_ARGS_H
#define MOEPACK_SHADERS_EMBED_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* hidden[b] = W[token of b] times constant 5 (a float), where the token is in [first, first + count); other rows stay as they
   are. Grid: work groups over the columns (any number), rows of the batch. */
struct EmbedArgs {
  MOE_ADDRESS(Words) codes;    /* [count] rows of codes or blocks */
  MOE_ADDRESS(Words) scales;   /* affine formats: [count][cols / group] */
  MOE_ADDRESS(Words) biases;   /* the same */
  MOE_ADDRESS(BatchRows) rows; /* [batch] */
  MOE_ADDRESS(F32) hidden;     /* [batch][stride] */
  MOE_ADDRESS(Halves) tables;  /* formats with tables: shaders/weight_tables.h */
  MOE_ADDRESS(Words) row_error; /* out, [batch]: 0xffffffff, whatever the token (RouteArgs) */
  uint first;                  /* token of the first row of W */
  uint count;                  /* rows of W */
  uint stride;                 /* floats */
};

MOE_SHADER_STRUCTS_END

#endif
