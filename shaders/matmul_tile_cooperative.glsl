// The form of matmul_tile.glsl for cooperative matrices of 16 x 16 x 16 16-bit floats with float32
// sums (VK_NV_cooperative_matrix). Four subgroups of 32: each sums rows 16 a … and 32 + 16 a … for 32
// tokens. Inputs come as 16-bit floats with a power of two per token (half_rows.comp), which the
// caller multiplies into the sums.

#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require

const uint kInputBytes = 2;  // inputs: 16-bit floats of each token, zeros up to a multiple of 64

// In 16-byte vectors of 8 columns; odd, so that 8 rows fill all banks.
const uint kPitch = kTileCols / 8 + 1;
shared uvec4 tile_weights[kTileRows * kPitch];   // [row][column / 8]
shared uvec4 tile_inputs[kTileTokens * kPitch];  // [token][column / 8]
// For each subgroup a fragment of low and one of high rows, [token][row].
shared float tile_sums[4 * 2 * 256];

struct TileRun {
  uvec4 values[PART / 8];
};

TileRun load_run(uint64_t input_at, uint column, bool whole_vectors) {
  TileRun run;
  [[unroll]] for (uint i = 0; i < PART / 8; ++i) run.values[i] = Words4(input_at).v[column / 8 + i];
  return run;
}

void put_run(uint token, uint column, TileRun run) {
  [[unroll]] for (uint i = 0; i < PART / 8; ++i) {
    tile_inputs[token * kPitch + column / 8 + i] = run.values[i];
  }
}

uint two_halves(float a, float b) { return packFloat2x16(f16vec2(a, b)); }

void put_weights(uint m, uint column, float w[PART]) {
  [[unroll]] for (uint i = 0; i < PART; i += 8) {
    tile_weights[m * kPitch + (column + i) / 8] =
        uvec4(two_halves(w[i], w[i + 1]), two_halves(w[i + 2], w[i + 3]),
              two_halves(w[i + 4], w[i + 5]), two_halves(w[i + 6], w[i + 7]));
  }
}

#define Sums fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define Factors fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>

// Of 16 rows for 16 tokens each.
struct TileSums {
  Sums low[2];
  Sums high[2];
};

void clear(out TileSums sums) {
  [[unroll]] for (uint f = 0; f < 2; ++f) sums.low[f] = sums.high[f] = Sums(0.0);
}

uint fragment_row() { return gl_SubgroupID % 2 * 16; }
uint fragment_token() { return gl_SubgroupID / 2 * 32; }

void add_products(uint count, inout TileSums sums) {
  const uint row = fragment_row();
  const uint token = fragment_token();
  if (token >= count) return;
  [[unroll]] for (uint k = 0; k < kTileCols / 8; k += 2) {
    Factors low, high;
    coopMatLoadNV(low, tile_weights, row * kPitch + k, kPitch, false);
    coopMatLoadNV(high, tile_weights, (row + kTileRows / 2) * kPitch + k, kPitch, false);
    [[unroll]] for (uint f = 0; f < 2; ++f) {
      if (token + 16 * f < count) {
        Factors x;
        coopMatLoadNV(x, tile_inputs, (token + 16 * f) * kPitch + k, kPitch, true);
        sums.low[f] = coopMatMulAddNV(low, x, sums.low[f]);
        sums.high[f] = coopMatMulAddNV(high, x, sums.high[f]);
      }
    }
  }
}

vec4 four_sums(uint at) {
  return vec4(tile_sums[at], tile_sums[at + 1], tile_sums[at + 2], tile_sums[at + 3]);
}

void give_sums(uint count, TileSums sums) {
  const uint base = gl_SubgroupID * 512;
  const uint column = gl_SubgroupInvocationID / 2;
  [[unroll]] for (uint f = 0; f < 2; ++f) {
    barrier();
    coopMatStoreNV(sums.low[f], tile_sums, base, 16, true);
    coopMatStoreNV(sums.high[f], tile_sums, base + 256, 16, true);
    barrier();
    const uint n = fragment_token() + 16 * f + column;
    if (n < count) {
      [[unroll]] for (uint i = 0; i < 2; ++i) {
        const uint m = gl_SubgroupInvocationID % 2 * 8 + 4 * i;
        const uint at = base + column * 16 + m;
        take_sums(n, fragment_row() + m, four_sums(at), four_sums(at + 256));
      }
    }
  }
}
