#ifndef MOEPACK_SHADERS_JOIN_NETWORK_ARGS_H
#define MOEPACK_SHADERS_JOIN_NETWORK_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* y[b] = (y[b] + network of b) * scale, of a layer that norms or scales what its network gives
   (MoeWeights::is_plain_sum): routed is the sum over the routed slots, in order, of weight * results[b][s],
   and of `more`; the network is norm(routed) + weight * norm(results of the shared expert), and all of it
   normed again. Norms that are absent leave what they are given. Grid: rows of the batch.
   Specialization constant: 0 threads of a work group. */
struct JoinNetworkArgs {
  MOE_ADDRESS(Words2) records;  /* as in CombineArgs */
  MOE_ADDRESS(Choices) choices; /* [batch][slots] */
  MOE_ADDRESS(F32) results;     /* [batch][slots][cols] */
  MOE_ADDRESS(F32) more;        /* [batch][cols], what was computed elsewhere; 0: nothing */
  MOE_ADDRESS(F32) routed_norm; /* [cols]; 0: none */
  MOE_ADDRESS(F32) shared_norm; /* the same */
  MOE_ADDRESS(F32) output_norm; /* the same */
  MOE_ADDRESS(F32) scale;       /* [1]; 0: 1 */
  MOE_ADDRESS(F32) work;        /* work memory, [batch][cols] */
  MOE_ADDRESS(F32) y;           /* [batch][cols] */
  uint experts; /* the table's, the shared one included */
  uint routed;  /* slots of routed experts; a further one is the shared expert's */
  uint slots;
  uint cols;
  float eps; /* of the norms */
};

MOE_SHADER_STRUCTS_END

#endif
