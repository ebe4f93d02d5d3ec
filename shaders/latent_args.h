/* Latent attention (runtime/model/latent_attention.h): arguments of its kernels. A query has
   head_dim values, of which the last `rotary` are rotated; RANK values of a token's compressed row
   are remembered with one rotated key behind them, WIDTH = RANK + rotary together, laid out
   [position, WIDTH]. "Latent" queries have WIDTH values too: what the head's key rows of kv_b_proj
   make of the plain part, then the rotated part. RANK and rotary are multiples of 4.
   Specialization constants of latent_prepare, latent_attend and latent_merge: 0 threads of a work
   group, 1 WIDTH, 2 the number of the KvEncoding, 3 RANK. */
#ifndef MOEPACK_SHADERS_LATENT_ARGS_H
#define MOEPACK_SHADERS_LATENT_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* Queries of a tile, keys of a block, most splits of the keys. */
#define MOE_LATENT_TILE 32
#define MOE_LATENT_BLOCK 32
#define MOE_LATENT_SPLITS 64

/* The rotated part of each query, scaled, goes behind the place of its absorbed part; the
   compressed row is normed, its key rotated, and both go to the cache. Grid: num_heads + 1, rows. */
struct LatentPrepareArgs {
  MOE_ADDRESS(BatchRows) rows;
  MOE_ADDRESS(F32) q;                  /* [rows, num_heads, head_dim] */
  MOE_ADDRESS(F32) keys;               /* [rows, WIDTH] */
  MOE_ADDRESS(F32) latent;             /* out, [rows, num_heads, WIDTH] */
  MOE_ADDRESS(F32) norm;               /* [RANK] */
  MOE_ADDRESS(F32) inverse_frequency;  /* [rotary / 2] */
  MOE_ADDRESS(WordsAddresses) caches;  /* [slices] */
  uint num_heads;
  uint head_dim;
  uint is_interleaved;                 /* pairs are (2i, 2i + 1) instead of (i, i + rotary / 2) */
  float amplitude;                     /* of cosines and sines */
  float scale;                         /* of the softmax */
  float eps;
};

/* All queries of some rows against the compressed rows; results are sums of compressed rows. Further
   constant: 4 whether the keys are split. Threads: 256.
   Not split: in place of the latent queries. Grid: ceil(most rows of a slice * num_heads /
   MOE_LATENT_TILE), 1, slices.
   Split, each row by itself: into `values` and `stats`, for latent_merge. Grid: ceil(num_heads /
   MOE_LATENT_TILE), splits, rows. */
struct LatentAttendArgs {
  MOE_ADDRESS(BatchRows) rows;
  MOE_ADDRESS(BatchSlices) slices;
  MOE_ADDRESS(F32) latent;   /* [rows, num_heads, WIDTH] */
  MOE_ADDRESS(WordsAddresses) caches;
  MOE_ADDRESS(F32) values;   /* [rows, num_heads, splits, RANK] */
  MOE_ADDRESS(F32) stats;    /* [rows, num_heads, splits, 2]: largest score, sum of weights */
  uint num_heads;
};

/* The splits' values in order, in place of the latent queries. Grid: num_heads, rows. */
struct LatentMergeArgs {
  MOE_ADDRESS(BatchRows) rows;
  MOE_ADDRESS(F32) values;
  MOE_ADDRESS(F32) stats;
  MOE_ADDRESS(F32) latent;
  uint splits;
};

/* Products of each head with some of its own rows of kv_b_proj. Constants: those of
   shaders/weights.glsl, 5 tokens of a work group (a multiple of 4). Threads: 128.
   latent_absorb: y[t][head][c] = sum over rows r of W[r][c] * (scale * x[t][head][r]).
     Grid: ceil(columns / 128), heads of the piece, ceil(tokens / constant 5).
   latent_expand: y[t][head][r] = sum over columns c of W[r][c] x[t][head][c].
     Grid: ceil(rows / MOE_LATENT_ROWS), and as above. */
#define MOE_LATENT_ROWS 32
struct LatentHeadArgs {
  MOE_ADDRESS(Bytes) codes;   /* of the first head of the piece */
  MOE_ADDRESS(Bytes) scales;
  MOE_ADDRESS(Bytes) biases;
  MOE_ADDRESS(Halves) tables;
  MOE_ADDRESS(F32) x;
  MOE_ADDRESS(F32) y;
  uint first_head;            /* of the piece */
  uint head_rows;             /* of the matrix, from head to head */
  uint first_row;             /* of a head's rows, the first that is taken */
  uint rows;
  uint tokens;
  uint x_token;               /* floats from token to token, and from head to head */
  uint x_head;
  uint y_token;
  uint y_head;
  float scale;
};

MOE_SHADER_STRUCTS_END

#endif
