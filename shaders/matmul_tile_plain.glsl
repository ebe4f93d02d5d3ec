// The float32 form of matmul_tile.glsl. Every thread sums 8 rows for 4 tokens; threads of 16
// neighbouring tokens lie side by side, so that subgroups without tokens have nothing to do.

const uint kInputBytes = 4;  // inputs: [COLS] floats of each token

const uint kVector = 4;

shared vec4 tile_weights[kTileCols * kTileRows / 4];   // [column][row], see place
shared vec4 tile_inputs[kTileCols * kTileTokens / 4];  // [column][token]

// Where four rows, or tokens, of a column lie: columns that are written together start in different
// banks. Four columns from a multiple of four on lie evenly spaced.
uint place(uint column, uint four) { return column * (kTileRows / 4) + (four ^ (column / 4 % 8)); }

#define InputVector vec4

// Zeros for columns from COLS on.
vec4 load_vector(uint64_t input_at, uint column, bool whole_vectors) {
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

void put_vector(uint token, uint vector, vec4 values) {
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    tile_inputs[place(4 * vector + i, token / 4)][token % 4] = values[i];
  }
}

void put_weights(uint m, uint column, float w[PART]) {
  [[unroll]] for (uint i = 0; i < PART; ++i) {
    tile_weights[place(column + i, m / 4)][m % 4] = w[i];
  }
}

vec4 low_sums[4];   // of four rows, for each of four tokens
vec4 high_sums[4];  // of the rows 32 further

void clear_sums() {
  [[unroll]] for (uint j = 0; j < 4; ++j) low_sums[j] = high_sums[j] = vec4(0);
}

void add_products(uint count) {
  const uint row4 = gl_LocalInvocationIndex % (kTileRows / 8);
  const uint token4 = gl_LocalInvocationIndex / (kTileRows / 8);
  if (4 * token4 >= count) return;
  for (uint k = 0; k < kTileCols; k += 4) {
    const uint low_at = place(k, row4);
    const uint high_at = place(k, row4 + kTileRows / 8);
    const uint x_at = place(k, token4);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const vec4 low = tile_weights[low_at + i * (kTileRows / 4)];
      const vec4 high = tile_weights[high_at + i * (kTileRows / 4)];
      const vec4 x = tile_inputs[x_at + i * (kTileTokens / 4)];
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        low_sums[j] += low * x[j];
        high_sums[j] += high * x[j];
      }
    }
  }
}

void give_sums(uint count) {
  const uint row = gl_LocalInvocationIndex % (kTileRows / 8) * 4;
  const uint token = gl_LocalInvocationIndex / (kTileRows / 8) * 4;
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (token + j < count) take_sums(token + j, row, low_sums[j], high_sums[j]);
  }
}
