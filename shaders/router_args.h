#ifndef MOEPACK_SHADERS_ROUTER_ARGS_H
#define MOEPACK_SHADERS_ROUTER_ARGS_H

#include "shaders/route_args.h"

/* Of RouterArgs::options. */
#define MOE_ROUTER_GROUPS_AT 16

MOE_SHADER_STRUCTS

/* A product as matvec forms it, and then what route does: the last work group of a row to be done
   routes it, which saves a dispatch and a barrier. Products of the router and, where there is a shared
   expert, of its gate are dispatches of this program with no barrier between them; they name the same
   logits and choices. Grid: work groups over the rows of W (any number), rows of the batch.
   Specialization constants: those of matvec, then from 12 on those of route from 1 on, 22: what the norm
   adds to the mean of squares, a float. */
struct RouterArgs {
  MOE_ADDRESS(Words) codes;
  MOE_ADDRESS(Words) scales;
  MOE_ADDRESS(Words) biases;
  MOE_ADDRESS(HandedF32) x;       /* [batch][cols] */
  MOE_ADDRESS(F32) factor;        /* [cols] */
  MOE_ADDRESS(Halves) tables;
  MOE_ADDRESS(SharedF32) y;       /* where row 0 of W goes: in logits, or shared_logits */
  MOE_ADDRESS(BatchRows) batch;
  MOE_ADDRESS(SharedF32) logits;  /* [batch][experts] */
  MOE_ADDRESS(SharedF32) shared_logits; /* [batch] */
  MOE_ADDRESS(Choices) choices;   /* as in RouteArgs */
  MOE_ADDRESS(Words) row_error;
  MOE_ADDRESS(Words) arrived;     /* [batch], zero before the first use; left at zero */
  MOE_ADDRESS(F32) bias;          /* as in RouteArgs */
  uint rows;                      /* of W */
  uint options; /* bit 0: has a shared expert, bit 1: renormalise, bit 2: the product is of the shared
                   expert's gate, one row; from bit 3 on MOE_ROUTER_GROUPS_AT - 3 bits: layer; from there on:
                   work groups of a row of the batch, of all dispatches together */
};

MOE_SHADER_STRUCTS_END

#endif
