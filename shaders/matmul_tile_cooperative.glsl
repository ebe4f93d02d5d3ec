// The form of matmul_tile.glsl for cooperative matrices of 16 x 16 x 16 16-bit floats with float32
// sums (VK_NV_cooperative_matrix). Four subgroups of 32: each sums rows 16 a … and 32 + 16 a … for 32
// tokens. Inputs come as 16-bit floats with a power of two per token (half_rows.comp), which the
// caller multiplies into the sums.

const uint kInputBytes = 2;  // inputs: 16-bit floats of each token, zeros up to a multiple of 8

const uint kVector = 8;
// In 16-byte vectors of 8 columns; odd, so that 8 rows fill all banks.
const uint kPitch = kTileCols / 8 + 1;
shared uvec4 tile_weights[kTileRows * kPitch];   // [row][column / 8]
shared uvec4 tile_inputs[kTileTokens * kPitch];  // [token][column / 8]
// For each subgroup a fragment of low and one of high rows, [token][row].
shared float tile_sums[4 * 2 * 256];

#define InputVector uvec4

uvec4 load_vector(uint64_t input_at, uint column, bool whole_vectors) {
  if (COLS % kTileCols != 0 && column >= COLS) return uvec4(0);
  return Words4(input_at).v[column / 8];
}

void put_vector(uint token, uint vector, uvec4 halves) {
  tile_inputs[token * kPitch + vector] = halves;
}

uint two_halves(float a, float b) { return packHalf2x16(vec2(a, b)); }

void put_weights(uint m, uint column, float w[PART]) {
  [[unroll]] for (uint i = 0; i < PART; i += 8) {
    tile_weights[m * kPitch + (column + i) / 8] =
        uvec4(two_halves(w[i], w[i + 1]), two_halves(w[i + 2], w[i + 3]),
              two_halves(w[i + 4], w[i + 5]), two_halves(w[i + 6], w[i + 7]));
  }
}

#include "shaders/cooperative_matrix.glsl"

// Of 16 rows for 16 tokens each; high: of the rows 32 further.
Sums low_sums[2];
Sums high_sums[2];

void clear_sums() {
  [[unroll]] for (uint f = 0; f < 2; ++f) low_sums[f] = high_sums[f] = ZERO_SUMS;
}

uint fragment_row() { return fragment_group() % 2 * 16; }
uint fragment_token() { return fragment_group() / 2 * 32; }

void add_products(uint count) {
  const uint row = fragment_row() * kPitch;
  const uint token = fragment_token();
  if (token >= count) return;
  [[unroll]] for (uint k = 0; k < kTileCols / 8; k += 2) {
    Factors low, high, x;
    LOAD_ROWS(low, row + k);
    LOAD_ROWS(high, row + kTileRows / 2 * kPitch + k);
    [[unroll]] for (uint f = 0; f < 2; ++f) {
      if (token + 16 * f < count) {
        LOAD_TOKENS(x, (token + 16 * f) * kPitch + k);
        ADD_PRODUCT(low, x, low_sums[f]);
        ADD_PRODUCT(high, x, high_sums[f]);
      }
    }
  }
}

vec4 four_sums(uint at) {
  return vec4(tile_sums[at], tile_sums[at + 1], tile_sums[at + 2], tile_sums[at + 3]);
}

void give_sums(uint count) {
  const uint base = fragment_group() * 512;
  const uint column = fragment_lane() / 2;
  [[unroll]] for (uint f = 0; f < 2; ++f) {
    barrier();
    STORE_SUMS(low_sums[f], base);
    STORE_SUMS(high_sums[f], base + 256);
    barrier();
    const uint n = fragment_token() + 16 * f + column;
    if (n < count) {
      [[unroll]] for (uint i = 0; i < 2; ++i) {
        const uint m = fragment_lane() % 2 * 8 + 4 * i;
        const uint at = base + column * 16 + m;
        take_sums(n, fragment_row() + m, four_sums(at), four_sums(at + 256));
      }
    }
  }
}
