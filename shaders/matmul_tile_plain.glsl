// The float32 form of matmul_tile.glsl. Every thread sums 8 rows for 4 tokens; threads of 16
// neighbouring tokens lie side by side, so that subgroups without tokens have nothing to do.

const uint kInputBytes = 4;  // inputs: [COLS] floats of each token

shared vec4 tile_weights[kTileCols * kTileRows / 4];   // [column][row]
shared vec4 tile_inputs[kTileCols * kTileTokens / 4];  // [column][token]

struct TileRun {
  vec4 values[PART / 4];
};

// Zeros for columns from COLS on.
TileRun load_run(uint64_t input_at, uint column, bool whole_vectors) {
  TileRun run;
  [[unroll]] for (uint i = 0; i < PART / 4; ++i) {
    const uint c = column + 4 * i;
    run.values[i] = vec4(0);
    if (whole_vectors) {
      if (c < COLS) run.values[i] = F32x4(input_at).v[c / 4];
    } else {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (c + j < COLS) run.values[i][j] = F32(input_at).v[c + j];
      }
    }
  }
  return run;
}

void put_run(uint token, uint column, TileRun run) {
  [[unroll]] for (uint i = 0; i < PART; ++i) {
    tile_inputs[(column + i) * (kTileTokens / 4) + token / 4][token % 4] = run.values[i / 4][i % 4];
  }
}

void put_weights(uint m, uint column, float w[PART]) {
  [[unroll]] for (uint i = 0; i < PART; ++i) {
    tile_weights[(column + i) * (kTileRows / 4) + m / 4][m % 4] = w[i];
  }
}

struct TileSums {
  vec4 low[4];   // of four rows, for each of four tokens
  vec4 high[4];  // of the rows 32 further
};

void clear(out TileSums sums) {
  [[unroll]] for (uint j = 0; j < 4; ++j) sums.low[j] = sums.high[j] = vec4(0);
}

void add_products(uint count, inout TileSums sums) {
  const uint row4 = gl_LocalInvocationIndex % (kTileRows / 8);
  const uint token4 = gl_LocalInvocationIndex / (kTileRows / 8);
  if (4 * token4 >= count) return;
  for (uint k = 0; k < kTileCols; ++k) {
    const vec4 low = tile_weights[k * (kTileRows / 4) + row4];
    const vec4 high = tile_weights[k * (kTileRows / 4) + row4 + kTileRows / 8];
    const vec4 x = tile_inputs[k * (kTileTokens / 4) + token4];
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      sums.low[j] += low * x[j];
      sums.high[j] += high * x[j];
    }
  }
}

void give_sums(uint count, TileSums sums) {
  const uint row = gl_LocalInvocationIndex % (kTileRows / 8) * 4;
  const uint token = gl_LocalInvocationIndex / (kTileRows / 8) * 4;
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (token + j < count) take_sums(token + j, row, sums.low[j], sums.high[j]);
  }
}
