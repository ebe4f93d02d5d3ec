/* GatedDeltaNet (runtime/model/delta_net.h): its kernels' arguments and the state of a slice.

   Two ways with the same bits: delta_step does everything for one V head of one slice, for batches
   of a few tokens; for many, delta_prepare (all tokens at once), delta_recur (tokens in order,
   columns of S over several work groups) and delta_gate (all tokens at once), each behind a barrier.
   A token's bits do not depend on how its sequence is cut into batches.

   State of a slice in a layer, 16-byte aligned, in floats (runtime/vulkan/delta_state.h converts):
     S:       [value_heads, value_dim, key_pad], key_pad = key_dim rounded up to 32: column j of S is
              contiguous; what lies behind key_dim is zero.
     windows: [value_heads, taps - 1, 2 * key_dim + value_dim]: the last raw inputs of the
              convolution for the head's q, k and v, oldest first; zeros before the sequence began.
              V heads that share a key head have each a copy, so that no work group reads what
              another writes.
   A slice at position 0 starts from zeros whatever its state holds, so a state needs no clearing.

   Specialization constants of all four kernels: 0 threads of a work group, 1 key_dim, 2 value_dim,
   3 taps; of delta_step also 4: columns of S per thread = ceil(8 * value_dim / threads). Eight lanes
   share a column; threads are a multiple of the subgroup's size. delta_recur: threads = 8 * (columns
   of a work group). */
#ifndef MOEPACK_SHADERS_DELTA_ARGS_H
#define MOEPACK_SHADERS_DELTA_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* Grid: value_heads, slices. Strides count floats from row to row. */
struct DeltaStepArgs {
  MOE_ADDRESS(BatchSlices) slices;
  MOE_ADDRESS(F32x4Addresses) states; /* [slices] */
  MOE_ADDRESS(HandedF32) qkv;         /* [rows]: raw projections, [channels] */
  MOE_ADDRESS(HandedF32) z;           /* [rows]: [value_heads, value_dim] */
  MOE_ADDRESS(HandedF32) a;           /* [rows]: [value_heads] */
  MOE_ADDRESS(HandedF32) b;           /* [rows]: [value_heads] */
  MOE_ADDRESS(F32) conv;              /* [taps, channels] */
  MOE_ADDRESS(F32) decay_rate;        /* [value_heads] */
  MOE_ADDRESS(F32) dt_bias;           /* [value_heads] */
  MOE_ADDRESS(F32) norm;              /* [value_dim] */
  MOE_ADDRESS(HandedF32) mixed;       /* out, [rows, value_heads, value_dim] */
  uint qkv_stride;
  uint z_stride;
  uint ab_stride; /* of a and of b */
  uint key_heads;
  uint value_heads;
  uint is_tiled; /* V head h has key head h % key_heads; else h / (value_heads / key_heads) */
  float eps;     /* of the norm */
};

/* Grid: rows. */
struct DeltaPrepareArgs {
  MOE_ADDRESS(BatchRows) rows;
  MOE_ADDRESS(BatchSlices) slices;
  MOE_ADDRESS(F32x4Addresses) states;
  MOE_ADDRESS(F32) qkv;
  MOE_ADDRESS(F32) a;
  MOE_ADDRESS(F32) b;
  MOE_ADDRESS(F32) conv;
  MOE_ADDRESS(F32) decay_rate;
  MOE_ADDRESS(F32) dt_bias;
  MOE_ADDRESS(F32x4) keys;  /* out, [rows, 2 * key_heads, key_pad]: queries, then keys */
  MOE_ADDRESS(F32) values;  /* out, [rows, value_heads, value_dim] */
  MOE_ADDRESS(F32) factors; /* out, [rows, value_heads, 2]: decay, beta */
  uint qkv_stride;
  uint ab_stride;
  uint key_heads;
  uint value_heads;
  uint is_tiled;
};

/* Grid: ceil(value_dim / columns of a work group), value_heads, slices. */
struct DeltaRecurArgs {
  MOE_ADDRESS(BatchSlices) slices;
  MOE_ADDRESS(F32x4Addresses) states;
  MOE_ADDRESS(F32) qkv;
  MOE_ADDRESS(F32x4) keys;
  MOE_ADDRESS(F32) values;
  MOE_ADDRESS(F32) factors;
  MOE_ADDRESS(F32) mixed; /* out, [rows, value_heads, value_dim]: neither normed nor gated */
  uint qkv_stride;
  uint key_heads;
  uint value_heads;
  uint is_tiled;
};

/* Grid: ceil(rows * value_heads * 8 / threads). In place. */
struct DeltaGateArgs {
  MOE_ADDRESS(BatchRows) rows;
  MOE_ADDRESS(F32) z;
  MOE_ADDRESS(F32) norm;
  MOE_ADDRESS(F32) mixed;
  uint z_stride;
  uint value_heads;
  uint count; /* rows */
  float eps;
};

MOE_SHADER_STRUCTS_END

#endif
