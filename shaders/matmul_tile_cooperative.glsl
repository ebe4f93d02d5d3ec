// The form of matmul_tile.glsl for cooperative matrices of 16 x 16 x 16 16-bit floats with float32
// sums (VK_NV_cooperative_matrix). Subgroups of 32 share the rows: each sums 16 low rows and the 16
// that lie half a tile further; where there are more subgroups, they share the tokens too. Inputs come
// as 16-bit floats with a power of two per token (half_rows.comp), which the caller multiplies into
// the sums. Every shape of a tile gives the same bits.

layout(constant_id = 5) const uint kTileTokens = 32;  // 16 for each kTileRows threads, or more
layout(constant_id = 6) const uint kTileRows = 128;   // a multiple of 32
const uint kTileThreads = gl_WorkGroupSize.x;         // kTileRows, or twice as many
const uint kTileCols = CHUNK > 64 ? CHUNK : 64;

const uint kInputBytes = 2;  // inputs: 16-bit floats of each token, zeros up to a multiple of 8

const uint kVector = 8;
// In 16-byte vectors of 8 columns; odd, so that 8 rows fill all banks.
const uint kPitch = kTileCols / 8 + 1;
shared uvec4 tile_weights[kTileRows * kPitch];   // [row][column / 8]; in the end the sums
shared uvec4 tile_inputs[kTileTokens * kPitch];  // [token][column / 8]

// Fragments of 16 tokens that a subgroup sums.
const uint kFragments = kTileTokens / 16 / (kTileThreads / kTileRows);
// Neighbouring threads take neighbouring chunks of a row, and vectors of a token's input, so that they
// read neighbouring bytes.
const uint kChunks = kTileCols / CHUNK;  // of a row in a step
const uint kThreadChunks = (kTileRows * kChunks + kTileThreads - 1) / kTileThreads;
const uint kVectors = kTileCols / kVector;  // of a token in a step
const uint kThreadVectors = (kTileTokens * kVectors + kTileThreads - 1) / kTileThreads;

#include "shaders/cooperative_matrix.glsl"

uint thread_place(uint i) { return gl_LocalInvocationIndex + i * kTileThreads; }

uvec4 load_vector(uint64_t input_at, uint step_index) {
  const uint place = step_index * kTileCols + thread_place(0) % kVectors * kVector;
  const uint column = part_column(place / CHUNK, place % CHUNK / PART) + place % PART;
  if (COLS % kTileCols != 0 && column >= COLS) return uvec4(0);
  return Words4(input_at).v[column / 8];
}

uint two_halves(float a, float b) { return packHalf2x16(vec2(a, b)); }

void stage_chunk(Chunk bytes, uint m, uint chunk, bool is_inside) {
  [[unroll]] for (uint part = 0; part < PARTS; ++part) {
    float w[PART];
    part_codes(bytes, part, w);
    const vec2 scale = part_scale(bytes, part);
    [[unroll]] for (uint i = 0; i < PART; ++i) {
#if HAS_SCALE
      w[i] *= scale.x;
#endif
#if HAS_BIAS
      w[i] += scale.y;
#endif
      if (CHUNKS % kChunks != 0 && !is_inside) w[i] = 0;
    }
    const uint at = m * kPitch + (chunk * CHUNK + part * PART) / 8;
    [[unroll]] for (uint i = 0; i < PART; i += 8) {
      tile_weights[at + i / 8] =
          uvec4(two_halves(w[i], w[i + 1]), two_halves(w[i + 2], w[i + 3]),
                two_halves(w[i + 4], w[i + 5]), two_halves(w[i + 6], w[i + 7]));
    }
  }
}

uint fragment_row() { return fragment_group() % (kTileRows / 32) * 16; }
uint fragment_token() { return fragment_group() / (kTileRows / 32) * (16 * kFragments); }

vec4 four_sums(uint at) { return uintBitsToFloat(tile_weights[at]); }

// The sums of a fragment of tokens, `n` the first, from where the subgroup put them.
void give_fragment(uint base, uint n, uint count) {
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const uint token = fragment_lane() / 4 + 8 * i;
    if (n + token < count) {
      const uint four = fragment_lane() % 4;
      const uint at = base + token * 4 + four;
      take_sums(n + token, fragment_row() + 4 * four, four_sums(at), four_sums(at + 64));
    }
  }
}

// Adds the products of a step for the first `fragments` of a subgroup, a constant: tests between
// them would keep one from overlapping another.
const uint kHalf = (kFragments + 1) / 2;
#define ADD_PRODUCTS(fragments)                                     \
  [[unroll]] for (uint k = 0; k < kTileCols / 8; k += 2) {          \
    Factors low, high;                                              \
    LOAD_ROWS(low, row_at + k);                                     \
    LOAD_ROWS(high, row_at + kTileRows / 2 * kPitch + k);           \
    [[unroll]] for (uint f = 0; f < fragments; ++f) {               \
      Factors x;                                                    \
      LOAD_TOKENS(x, token_at + 16 * f * kPitch + k);               \
      ADD_PRODUCT(low, x, low_sums[f]);                             \
      ADD_PRODUCT(high, x, high_sums[f]);                           \
    }                                                               \
  }

// Tokens from `count` on are computed like the last one, or not at all.
void multiply_tile(Halves tables, uint count, bool whole_vectors) {
#if HAS_TABLES
  fill_tables(tables, gl_LocalInvocationIndex, kTileThreads);
#endif
  RowRef rows[kThreadChunks];
  Chunk chunks[kThreadChunks];
  [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
    rows[i] = tile_row(min(thread_place(i) / kChunks, kTileRows - 1));
    chunks[i] = load_chunk(rows[i], min(thread_place(i) % kChunks, CHUNKS - 1));
  }
  uint64_t inputs[kThreadVectors];
  uvec4 vectors[kThreadVectors];
  [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) {
    inputs[i] = input_of(min(thread_place(i) / kVectors, count - 1));
    vectors[i] = load_vector(inputs[i], 0);
  }
  Sums low_sums[kFragments];
  Sums high_sums[kFragments];
  [[unroll]] for (uint f = 0; f < kFragments; ++f) low_sums[f] = high_sums[f] = ZERO_SUMS;
  const uint row_at = fragment_row() * kPitch;
  const uint token_at = fragment_token() * kPitch;
  const bool is_half = subgroupBroadcastFirst(uint(count <= fragment_token() + 16 * kHalf)) != 0;
  const uint steps = (CHUNKS + kChunks - 1) / kChunks;
  for (uint step_index = 0; step_index < steps; ++step_index) {
    barrier();
    [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
      const uint m = thread_place(i) / kChunks;
      const uint chunk = thread_place(i) % kChunks;
      if (kTileRows * kChunks % kTileThreads == 0 || m < kTileRows) {
        stage_chunk(chunks[i], m, chunk, step_index * kChunks + chunk < CHUNKS);
      }
    }
    [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) {
      const uint token = thread_place(i) / kVectors;
      if (kTileTokens * kVectors % kTileThreads == 0 || token < kTileTokens) {
        tile_inputs[token * kPitch + thread_place(i) % kVectors] = vectors[i];
      }
    }
    barrier();
    // Of the next step; nothing waits for it yet.
    const uint next = min(step_index + 1, steps - 1);
    [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
      const uint chunk = next * kChunks + thread_place(i) % kChunks;
      chunks[i] = load_chunk(rows[i], min(chunk, CHUNKS - 1));
    }
    [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) vectors[i] = load_vector(inputs[i], next);
    if (is_half) {
      ADD_PRODUCTS(kHalf)
    } else {
      ADD_PRODUCTS(kFragments)
    }
  }
  const uint base = fragment_group() * 128;
  [[unroll]] for (uint f = 0; f < kFragments; ++f) {
    barrier();
    STORE_SUMS(low_sums[f], base);
    STORE_SUMS(high_sums[f], base + 64);
    barrier();
    give_fragment(base, fragment_token() + 16 * f, count);
  }
}
