// The float32 form of matmul_tile.glsl. Every thread sums 8 rows for 4 tokens; threads of
// neighbouring rows lie side by side, so that subgroups without tokens have nothing to do. Where there
// are more threads than a tile needs so, they share the columns of a step: small tiles, of which a
// small matrix has enough for a large device.

layout(constant_id = 5) const uint kTileTokens = 64;  // 32 or 64
layout(constant_id = 6) const uint kTileRows = 64;    // 32 or 64
const uint kTileThreads = gl_WorkGroupSize.x;
const uint kSumThreads = kTileRows * kTileTokens / 32;  // that have all sums of a tile
const uint kShares = kTileThreads / kSumThreads;        // of the columns of a step

// Columns between two barriers, in the order in which chunks hold them; at least kTileTokens.
const uint kTileCols = CHUNK > 2048 / kTileRows ? CHUNK : 2048 / kTileRows;

const uint kInputBytes = 4;  // inputs: [COLS] floats of each token

const uint kRowFours = kTileRows / 4;
const uint kTokenFours = kTileTokens / 4;
shared vec4 tile_weights[kTileCols * kRowFours];   // [column][row], see place; in the end sums
shared vec4 tile_inputs[kTileCols * kTokenFours];  // [column][token]

// Neighbouring threads take neighbouring chunks of a row, and vectors of a token's input, so that they
// read neighbouring bytes.
const uint kChunks = kTileCols / CHUNK;  // of a row in a step
const uint kThreadChunks = (kTileRows * kChunks + kTileThreads - 1) / kTileThreads;
const uint kVectors = kTileCols / 4;  // of a token in a step
const uint kThreadVectors = (kTileTokens * kVectors + kTileThreads - 1) / kTileThreads;

uint thread_place(uint i) { return gl_LocalInvocationIndex + i * kTileThreads; }

// Which of `fours` four rows, or tokens, of a column: columns that are written together start in
// different banks. Four columns from a multiple of four on lie evenly spaced.
uint place(uint column, uint four, uint fours) { return column * fours + (four ^ (column / 4 % 8)); }

// Zeros for columns from COLS on. Inputs of all tokens start at multiples of 16 bytes, and COLS is a
// multiple of 4, with whole_vectors.
vec4 load_vector(uint64_t input_at, uint step_index, bool whole_vectors) {
  const uint nth = step_index * kTileCols + thread_place(0) % kVectors * 4;
  const uint column = part_column(nth / CHUNK, nth % CHUNK / PART) + nth % PART;
  vec4 values = vec4(0);
  if (whole_vectors) {
    if (column < COLS) values = F32x4(input_at).v[column / 4];
  } else {
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      if (column + i < COLS) values[i] = F32(input_at).v[column + i];
    }
  }
  return values;
}

void stage_vector(uint token, uint vector, vec4 values) {
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    tile_inputs[place(4 * vector + i, token / 4, kTokenFours)][token % 4] = values[i];
  }
}

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
      tile_weights[place(chunk * CHUNK + part * PART + i, m / 4, kRowFours)][m % 4] = w[i];
    }
  }
}

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
  vec4 vectors[kThreadVectors];
  [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) {
    inputs[i] = input_of(min(thread_place(i) / kVectors, count - 1));
    vectors[i] = load_vector(inputs[i], 0, whole_vectors);
  }
  const uint share = gl_LocalInvocationIndex / kSumThreads;
  const uint place_in_share = gl_LocalInvocationIndex % kSumThreads;
  const uint row4 = place_in_share % (kRowFours / 2);
  const uint token4 = place_in_share / (kRowFours / 2);
  vec4 low_sums[4];   // of four rows, for each of four tokens
  vec4 high_sums[4];  // of the rows half a tile further
  [[unroll]] for (uint j = 0; j < 4; ++j) low_sums[j] = high_sums[j] = vec4(0);
  const uint steps = (CHUNKS + kChunks - 1) / kChunks;
  for (uint step_index = 0; step_index < steps; ++step_index) {
    barrier();
    [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
      const uint m = thread_place(i) / kChunks;
      const uint chunk = thread_place(i) % kChunks;
      if (m < kTileRows) stage_chunk(chunks[i], m, chunk, step_index * kChunks + chunk < CHUNKS);
    }
    [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) {
      const uint token = thread_place(i) / kVectors;
      if (token < kTileTokens) stage_vector(token, thread_place(i) % kVectors, vectors[i]);
    }
    barrier();
    // Of the next step; nothing waits for it yet.
    if (step_index + 1 < steps) {
      [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
        const uint chunk = (step_index + 1) * kChunks + thread_place(i) % kChunks;
        chunks[i] = load_chunk(rows[i], min(chunk, CHUNKS - 1));
      }
      [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) {
        vectors[i] = load_vector(inputs[i], step_index + 1, whole_vectors);
      }
    }
    if (4 * token4 < count) {
      for (uint k = 4 * share; k < kTileCols; k += 4 * kShares) {
        const uint low_at = place(k, row4, kRowFours);
        const uint high_at = place(k, row4 + kRowFours / 2, kRowFours);
        const uint x_at = place(k, token4, kTokenFours);
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          const vec4 low = tile_weights[low_at + i * kRowFours];
          const vec4 high = tile_weights[high_at + i * kRowFours];
          const vec4 x = tile_inputs[x_at + i * kTokenFours];
          [[unroll]] for (uint j = 0; j < 4; ++j) {
            low_sums[j] += low * x[j];
            high_sums[j] += high * x[j];
          }
        }
      }
    }
  }
  // The first share adds the others' sums, in order.
  [[unroll]] for (uint other = 1; other < kShares; ++other) {
    barrier();
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint at = 2 * j * kSumThreads + place_in_share;
      if (share == other) {
        tile_weights[at] = low_sums[j];
        tile_weights[at + kSumThreads] = high_sums[j];
      }
    }
    barrier();
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint at = 2 * j * kSumThreads + place_in_share;
      if (share == 0) {
        low_sums[j] += tile_weights[at];
        high_sums[j] += tile_weights[at + kSumThreads];
      }
    }
  }
  if (share != 0) return;
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (4 * token4 + j < count) take_sums(4 * token4 + j, 4 * row4, low_sums[j], high_sums[j]);
  }
}
