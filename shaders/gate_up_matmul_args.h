#ifndef MOEPACK_SHADERS_GATE_UP_MATMUL_ARGS_H
#define MOEPACK_SHADERS_GATE_UP_MATMUL_ARGS_H

#include "shaders/expert_groups.h"
#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* act[pair] = silu(W_gate x[row]) * (W_up x[row]), or another activation (expert_activation.h), of the
   pair's expert and row = pair / slots; grid
   {width / half the tile rows, rounded up, tiles} (matmul_tile.glsl). */
struct GateUpMatmulArgs {
  MOE_ADDRESS(Words2) records; /* [experts + 1] addresses; 0: absent, its pairs are skipped */
  MOE_ADDRESS(Words) kinds;    /* [experts + 1], or 0: tiles of experts of another kind are left alone */
  MOE_ADDRESS(Words) pairs;    /* expert_groups.h */
  MOE_ADDRESS(ExpertTiles) tiles;
  MOE_ADDRESS(Halves) tables;  /* weight_tables.h; formats without tables: 0 */
  MOE_ADDRESS(F32) x;          /* [rows], x_stride apart; cooperative: what half_rows made */
  MOE_ADDRESS(F32) x_scales;   /* cooperative: [rows] */
  MOE_ADDRESS(F32) act;        /* [rows * slots][width] */
  MOE_ADDRESS(F32) bias;       /* with ADDS_BIAS: [experts][2][width], of gate, then of up */
  uint gate_codes;             /* bytes from the start of a record */
  uint gate_scales;
  uint gate_biases;
  uint up_codes;
  uint up_scales;
  uint up_biases;
  uint width;                  /* rows of gate and of up */
  uint x_stride;               /* elements of x */
  uint slots;
  uint kind;                   /* the one of `kinds` whose records these offsets describe */
};

MOE_SHADER_STRUCTS_END

#endif
