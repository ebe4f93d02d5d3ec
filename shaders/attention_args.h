/* Full attention (runtime/model/full_attention.h): arguments of its kernels. Strides count floats.
   Queries: [rows], `q_stride` apart, in a row the heads `q_step` apart: head_dim, or 2 * head_dim
   where each is followed by the gate of its output.
   Caches: addresses of each slice's keys and values, laid out as kv.glsl says; positions beyond those
   seen may hold anything.
   Specialization constants of all: 0 threads of a work group, 1 head_dim (a multiple of 4, for attend of
   8, at most 512), 2 the number of the KvEncoding (f32, bf16, f16). */
#ifndef MOEPACK_SHADERS_ATTENTION_ARGS_H
#define MOEPACK_SHADERS_ATTENTION_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* Queries are normed, limited, rotated and scaled in place; keys likewise (but not scaled) and values go
   to the cache. Grid: parts, rows; parts: 3 (all queries, all keys, all values) where the norm takes the
   whole width, else num_heads + 2 * kv_heads. Further constants: 3 whether queries and keys are normed, 4
   whether biases are added before, 5 what cosines and sines are multiplied with (a float), 6 what queries
   are scaled by (a float; 0: head_dim^-1/2), 7 whether each head of values is normed, without a factor;
   not where the norm takes the whole width. */
struct QkPrepareArgs {
  MOE_ADDRESS(BatchRows) rows;
  MOE_ADDRESS(HandedF32) q;
  MOE_ADDRESS(HandedF32) k;            /* [rows]: [kv_heads, head_dim] */
  MOE_ADDRESS(HandedF32) v;            /* the same; k itself where values are keys */
  MOE_ADDRESS(F32) q_norm;             /* [head_dim], or of the whole width */
  MOE_ADDRESS(F32) k_norm;
  MOE_ADDRESS(F32) inverse_frequency;  /* [rotary_dim / 2] */
  MOE_ADDRESS(F32) bias;               /* with constant 4: [num_heads + 2 kv_heads, head_dim], of queries,
                                          keys and values; q_step is then head_dim */
  MOE_ADDRESS(WordsAddresses) caches;  /* [slices] */
  uint q_stride;
  uint q_step;
  uint k_stride;
  uint v_stride;
  uint num_heads;
  uint kv_heads;
  uint rotary_dim;
  uint is_whole_width;
  float eps;
  float clip; /* infinite: no limit */
};

/* Keys that a work group of attend takes at once, half as many where they are float32, and again half as
   many where heads have more than 256 values, so that their values fit shared memory; and the most splits
   of the keys. */
#define MOE_ATTEND_BLOCK 32
#define MOE_ATTEND_SPLITS 64

/* One token's attention over a part of the keys; the last work group of some heads merges the splits
   in order. Grid: splits, kv_heads * ceil(heads per kv head / queries), rows. Further constants: 3
   lanes of a key (a power of two from 8 to 32, at most the subgroup), 4 queries of a work group (1, 2, 4 or
   8). Threads: 8 * lanes. Keys are split in whole blocks, so results depend on the row's position, the
   number of splits and these constants alone. 5: whether heads have sinks, 6: the window, of which a
   token sees the last keys; 0: all of them. 7, for tests: whether lanes exchange values through shared
   memory, of which there may then be 32 on any device. */
struct AttendArgs {
  MOE_ADDRESS(BatchRows) rows;
  MOE_ADDRESS(HandedF32) q;
  MOE_ADDRESS(WordsAddresses) caches;
  MOE_ADDRESS(F32) values;   /* work memory, [rows, num_heads, splits, head_dim] */
  MOE_ADDRESS(F32) stats;    /* the same, [rows, num_heads, splits, 2]: largest score, sum of weights */
  MOE_ADDRESS(Words) arrived; /* [rows, grid's second], zero before the first use; left at zero */
  MOE_ADDRESS(HandedF32x4) attended; /* out, [rows, num_heads, head_dim] */
  MOE_ADDRESS(F32) sinks;    /* with constant 5: [num_heads], a score that has no value */
  uint q_stride;
  uint q_step;
  uint num_heads;
  uint kv_heads;
  uint has_gate;
};

/* Many rows of a slice, all in one. Grid: ceil(most rows of a slice * heads per kv head / 64),
   kv_heads, slices. Threads: 256. Further constants: 3 whether heads have
   sinks, 4 the window, as in AttendArgs. */
struct AttendPromptArgs {
  MOE_ADDRESS(BatchSlices) slices;
  MOE_ADDRESS(F32) q;
  MOE_ADDRESS(WordsAddresses) caches;
  MOE_ADDRESS(F32) attended;
  MOE_ADDRESS(F32) sinks;
  uint q_stride;
  uint q_step;
  uint num_heads;
  uint kv_heads;
  uint has_gate;
};

MOE_SHADER_STRUCTS_END

#endif
