#ifndef MOEPACK_SHADERS_GATE_UP_ARGS_H
#define MOEPACK_SHADERS_GATE_UP_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* act[b][s] = silu(gate x[b]) * (up x[b]) for the expert of slot s, or another activation
   (expert_activation.h); of one matrix alone: its product. Grid: work groups over the rows of gate (any number), slots from first_slot, rows of the
   batch. Slots whose expert is not in the table or of another kind stay as they are.
   Where cols is a multiple of 4, x, its rows and factor begin at multiples of 16 bytes. */
struct GateUpArgs {
  MOE_ADDRESS(Words2) records;  /* [experts] addresses; 0: not there */
  MOE_ADDRESS(Words) kinds;     /* with BY_KIND: [experts] which layout a record has */
  MOE_ADDRESS(Choices) choices; /* [batch][slots]; with CHOOSES instead the layer's RouteArgs */
  MOE_ADDRESS(HandedF32) x;     /* [batch][x_stride] */
  MOE_ADDRESS(F32) factor;      /* with a norm: [cols] */
  MOE_ADDRESS(HandedF32) act;   /* [batch][slots][act_stride] */
  MOE_ADDRESS(Halves) tables;   /* formats with tables: shaders/weight_tables.h */
  MOE_ADDRESS(F32) bias;        /* with ADDS_BIAS: [experts][2][rows], of gate, then of up; of one matrix
                                   alone from its own on */
  uint experts;
  uint kind; /* with BY_KIND: records of this one are computed */
  uint slots; /* of a row of choices and of act */
  uint first_slot;
  uint rows;        /* of gate and of up */
  uint gate_codes;  /* bytes from the start of a record */
  uint gate_scales; /* affine formats */
  uint gate_biases;
  uint up_codes;
  uint up_scales;
  uint up_biases;
  uint x_stride;   /* floats */
  uint act_stride; /* floats */
  float eps;       /* of the norm */
};

MOE_SHADER_STRUCTS_END

#endif
