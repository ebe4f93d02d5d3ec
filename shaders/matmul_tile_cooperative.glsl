// The form of matmul_tile.glsl for cooperative matrices of 16 x 16 x 16 16-bit floats with float32
// sums (VK_NV_cooperative_matrix). Four subgroups of 32: each sums rows 16 a … and 32 + 16 a … for 32
// tokens. Inputs come as 16-bit floats with a power of two per token (half_rows.comp), which the
// caller multiplies into the sums. While one step is multiplied the next is decoded.

#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require

#define TileInput Words4 /* of one token: 16-bit floats, zeros up to a multiple of 32 columns */
const uint kInputBytes = 2;

// In 16-byte vectors of 8 columns; odd, so that 8 rows fill all banks.
const uint kPitch = kTileCols / 8 + 1;
const uint kStages = 2;
shared uvec4 tile_weights[kStages * kTileRows * kPitch];   // [stage][row][column / 8]
shared uvec4 tile_inputs[kStages * kTileTokens * kPitch];  // [stage][token][column / 8]
// For each subgroup a fragment of low and one of high rows, [token][row].
shared float tile_sums[4 * 2 * 256];

#define Sums fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define Factors fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>

void stage_weights(uint stage, uint row, uint first, uint col) {
  [[unroll]] for (uint run = 0; run < kThreadCols; run += kRun) {
    float w[kRun];
    matrix_run(row, col + first + run, w);
    [[unroll]] for (uint i = 0; i < kRun; i += 8) {
      tile_weights[(stage * kTileRows + row) * kPitch + (first + run + i) / 8] =
          uvec4(packFloat2x16(f16vec2(w[i], w[i + 1])), packFloat2x16(f16vec2(w[i + 2], w[i + 3])),
                packFloat2x16(f16vec2(w[i + 4], w[i + 5])),
                packFloat2x16(f16vec2(w[i + 6], w[i + 7])));
    }
  }
}

void stage_inputs(Words4 x, uint stage, uint token, uint first, uint col) {
  [[unroll]] for (uint i = 0; i < kThreadCols; i += 8) {
    tile_inputs[(stage * kTileTokens + token) * kPitch + (first + i) / 8] =
        x.v[(col + first + i) / 8];
  }
}

void add_products(uint stage, uint row, uint token, uint count, inout Sums sums[2][2]) {
  [[unroll]] for (uint k = 0; k < kTileCols / 8; k += 2) {
    const uint low_row = stage * kTileRows + row;
    Factors low, high;
    coopMatLoadNV(low, tile_weights, low_row * kPitch + k, kPitch, false);
    coopMatLoadNV(high, tile_weights, (low_row + kTileRows / 2) * kPitch + k, kPitch, false);
    [[unroll]] for (uint f = 0; f < 2; ++f) {
      if (token + 16 * f < count) {
        Factors x;
        coopMatLoadNV(x, tile_inputs, (stage * kTileTokens + token + 16 * f) * kPitch + k, kPitch,
                      true);
        sums[0][f] = coopMatMulAddNV(low, x, sums[0][f]);
        sums[1][f] = coopMatMulAddNV(high, x, sums[1][f]);
      }
    }
  }
}

void give_sums(uint row, uint token, uint count, Sums sums[2][2]) {
  const uint lane = gl_SubgroupInvocationID;
  const uint base = gl_SubgroupID * 512;
  [[unroll]] for (uint f = 0; f < 2; ++f) {
    barrier();
    coopMatStoreNV(sums[0][f], tile_sums, base, 16, true);
    coopMatStoreNV(sums[1][f], tile_sums, base + 256, 16, true);
    barrier();
    const uint n = token + 16 * f + lane / 2;
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      const uint m = lane % 2 * 8 + 4 * i;
      vec4 low, high;
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        low[j] = tile_sums[base + lane / 2 * 16 + m + j];
        high[j] = tile_sums[base + 256 + lane / 2 * 16 + m + j];
      }
      if (n < count) take_sums(n, row + m, low, high);
    }
  }
}

// x: of the thread's token, gl_LocalInvocationIndex % 64, read where that is below `count`.
void multiply_tile(Words4 x, uint cols, uint count, bool whole_vectors) {
  const uint thread = gl_LocalInvocationIndex;
  const uint place = thread % kTileRows;
  const uint first = thread / kTileRows * kThreadCols;
  const uint row = gl_SubgroupID % 2 * 16;
  const uint token = gl_SubgroupID / 2 * 32;
  Sums sums[2][2];
  [[unroll]] for (uint f = 0; f < 2; ++f) sums[0][f] = sums[1][f] = Sums(0.0);
  stage_weights(0, place, first, 0);
  if (place < count) stage_inputs(x, 0, place, first, 0);
  barrier();
  uint stage = 0;
  for (uint col = 0; col < cols; col += kTileCols) {
    const uint next = col + kTileCols;
    if (next < cols) {
      stage_weights(1 - stage, place, first, next);
      if (place < count) stage_inputs(x, 1 - stage, place, first, next);
    }
    add_products(stage, row, token, count, sums);
    stage = 1 - stage;
    barrier();
  }
  give_sums(row, token, count, sums);
}
