// The float32 form of matmul_tile.glsl. Every thread sums 8 rows for 4 tokens; threads of 16
// neighbouring tokens lie side by side, so that subgroups without tokens have nothing to do.

#define TileInput F32 /* of one token, [cols] */
const uint kInputBytes = 4;

const uint kPitch = kTileRows / 4 + 1;  // in vec4; odd, so that columns start in different banks
shared vec4 tile_weights[kTileCols * kPitch];  // [column][row]
shared vec4 tile_inputs[kTileCols * kPitch];   // [column][token]

void stage_weights(uint row, uint first, uint col) {
  [[unroll]] for (uint run = 0; run < kThreadCols; run += kRun) {
    float w[kRun];
    matrix_run(row, col + first + run, w);
    [[unroll]] for (uint i = 0; i < kRun; ++i) {
      tile_weights[(first + run + i) * kPitch + row / 4][row % 4] = w[i];
    }
  }
}

void stage_inputs(F32 x, uint token, uint first, uint col, uint cols, bool whole_vectors) {
  [[unroll]] for (uint i = 0; i < kThreadCols; i += 4) {
    const uint c = col + first + i;
    vec4 values = vec4(0);
    if (whole_vectors && c < cols) {
      values = F32x4(x).v[c / 4];
    } else {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (c + j < cols) values[j] = x.v[c + j];
      }
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      tile_inputs[(first + i + j) * kPitch + token / 4][token % 4] = values[j];
    }
  }
}

void add_products(uint row4, uint token4, inout vec4 sums[2][4]) {
  [[unroll]] for (uint k = 0; k < kTileCols; ++k) {
    const vec4 low = tile_weights[k * kPitch + row4];
    const vec4 high = tile_weights[k * kPitch + row4 + kTileRows / 8];
    const vec4 x = tile_inputs[k * kPitch + token4];
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      sums[0][j] += low * x[j];
      sums[1][j] += high * x[j];
    }
  }
}

// x: of the thread's token, gl_LocalInvocationIndex % 64, read where that is below `count`.
// whole_vectors: every token's row starts at a multiple of 16 bytes and cols is a multiple of 4.
void multiply_tile(F32 x, uint cols, uint count, bool whole_vectors) {
  const uint thread = gl_LocalInvocationIndex;
  const uint place = thread % kTileRows;
  const uint first = thread / kTileRows * kThreadCols;
  const uint row4 = thread % (kTileRows / 8);
  const uint token4 = thread / (kTileRows / 8);
  vec4 sums[2][4];
  [[unroll]] for (uint j = 0; j < 4; ++j) sums[0][j] = sums[1][j] = vec4(0);
  for (uint col = 0; col < cols; col += kTileCols) {
    barrier();
    stage_weights(place, first, col);
    if (place < count) stage_inputs(x, place, first, col, cols, whole_vectors);
    barrier();
    if (4 * token4 < count) add_products(row4, token4, sums);
  }
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (4 * token4 + j < count) take_sums(4 * token4 + j, 4 * row4, sums[0][j], sums[1][j]);
  }
}
