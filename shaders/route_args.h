#ifndef MOEPACK_SHADERS_ROUTE_ARGS_H
#define MOEPACK_SHADERS_ROUTE_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* Expert of a slot that computes nothing. */
#define MOE_NO_EXPERT 0xffffffffu

/* Exact routing (runtime/model/router.h), and the shared expert as the last slot of a row: expert
   number `experts`, weight sigmoid(its gate's logit). A row that is not live or whose logits are not
   all finite gets no expert in any slot, with weight 0; of the latter row_error becomes the lowest
   layer where that was so. Grid: rows.
   Specialization constants: 0 threads of a work group, 1 the number of routed experts (at most 1024),
   2 the number chosen (at most 32), 3 whether experts have the sigmoids of their logits instead of a
   softmax (SigmoidRouterSpec), 4 whether there is a bias, 5 the groups of experts (at most 64), 6 how
   many of them are looked at, 7 what sigmoids are multiplied with in the end (a float), 8 whether the
   shared expert has a gate: without one its weight is 1, 9 whether weights are multiplied with a number
   of the expert at last. */
struct RouteArgs {
  MOE_ADDRESS(BatchRows) rows;
  MOE_ADDRESS(SharedF32) logits;  /* [rows]: [experts] */
  MOE_ADDRESS(SharedF32) shared_logits; /* [rows]: 1; not read without a shared expert */
  MOE_ADDRESS(Choices) choices;   /* out, [rows, top_k + has_shared] */
  MOE_ADDRESS(Words) row_error;   /* [rows], 0xffffffff before the first layer */
  MOE_ADDRESS(F32) bias;          /* with constant 4: [experts]. Of a softmax: added to the logits, which are
                                     written back; of sigmoids: added to choose, and to nothing else. With
                                     constant 9 what follows: [experts], the numbers of the experts */
  uint logits_stride;
  uint shared_stride;
  uint has_shared;
  uint renormalise;
  uint layer;
};

MOE_SHADER_STRUCTS_END

#endif
