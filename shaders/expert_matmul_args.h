#ifndef MOEPACK_SHADERS_EXPERT_MATMUL_ARGS_H
#define MOEPACK_SHADERS_EXPERT_MATMUL_ARGS_H

#include "shaders/expert_groups.h"
#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y[pair] = W x[pair / pairs_per_input] with W of the pair's expert: the down projection
   (pairs_per_input 1), or gate or up alone (slots); grid {outputs / tile rows rounded up, tiles}
   (matmul_tile.glsl). */
struct ExpertMatmulArgs {
  MOE_ADDRESS(Words2) records; /* [experts + 1] addresses; 0: absent, its pairs are skipped */
  MOE_ADDRESS(Words) kinds;    /* [experts + 1], or 0: tiles of experts of another kind are left alone */
  MOE_ADDRESS(Words) pairs;    /* expert_groups.h */
  MOE_ADDRESS(ExpertTiles) tiles;
  MOE_ADDRESS(Halves) tables;  /* weight_tables.h; formats without tables: 0 */
  MOE_ADDRESS(F32) x;          /* inputs x_stride apart; cooperative: what half_rows made */
  MOE_ADDRESS(F32) x_scales;   /* cooperative: one for each input */
  MOE_ADDRESS(F32) y;          /* [rows * slots][outputs] */
  MOE_ADDRESS(F32) bias;       /* with ADDS_BIAS: [experts], bias_stride floats apart: [outputs] */
  uint codes;                  /* bytes from the start of a record */
  uint scales;
  uint biases;
  uint outputs;                /* rows of W */
  uint x_stride;               /* elements of x */
  uint pairs_per_input;
  uint bias_stride;
  uint kind;                   /* the one of `kinds` whose records these offsets describe */
};

MOE_SHADER_STRUCTS_END

#endif
