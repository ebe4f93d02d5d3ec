// Fragments of 16 x 16 that a subgroup of 32 holds together, for matmul_tile_cooperative.glsl. With
// EMULATE_MATRIX they are made of ordinary arithmetic, so that everything around them can be tested
// on a device without cooperative matrices; that form is slow.
//
//   LOAD_ROWS(factors, at), LOAD_TOKENS(factors, at)
//       16-bit floats from tile_weights or tile_inputs: 16 rows of 16 columns, kPitch vectors apart,
//       from vector `at`
//   ADD_PRODUCT(rows, tokens, sums)  to float32 sums [row][token]
//   STORE_SUMS(sums, at)             to tile_weights as float32, [token][row], from vector `at`
// They are macros because fragments are not copied into functions and out of them.
#ifndef MOEPACK_SHADERS_COOPERATIVE_MATRIX_GLSL
#define MOEPACK_SHADERS_COOPERATIVE_MATRIX_GLSL

#ifdef EMULATE_MATRIX

struct Sums {
  float v[8];  // of row lane / 2, from token lane % 2 * 8
};
#define Factors uint
#define ZERO_SUMS Sums(float[8](0, 0, 0, 0, 0, 0, 0, 0))

uint fragment_group() { return gl_LocalInvocationIndex / 32; }
uint fragment_lane() { return gl_LocalInvocationIndex % 32; }

float half_of(uvec4 words, uint i) { return unpackHalf2x16(words[i / 2])[i % 2]; }

#define LOAD_ROWS(factors, at) factors = (at)
#define LOAD_TOKENS(factors, at) factors = (at)
#define ADD_PRODUCT(rows, tokens, sums) add_product(rows, tokens, sums)
#define STORE_SUMS(sums, at) store_sums(sums, at)

void add_product(uint rows, uint tokens, inout Sums sums) {
  for (uint i = 0; i < 8; ++i) {
    const uint row = rows + fragment_lane() / 2 * kPitch;
    const uint token = tokens + (fragment_lane() % 2 * 8 + i) * kPitch;
    for (uint k = 0; k < 16; ++k) {
      sums.v[i] += half_of(tile_weights[row + k / 8], k % 8) *
                   half_of(tile_inputs[token + k / 8], k % 8);
    }
  }
}

void store_sums(Sums sums, uint at) {
  for (uint i = 0; i < 8; ++i) {
    const uint row = fragment_lane() / 2;
    const uint token = fragment_lane() % 2 * 8 + i;
    tile_weights[at + token * 4 + row / 4][row % 4] = floatBitsToUint(sums.v[i]);
  }
}

#else

#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require

#define Sums fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define Factors fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>
#define ZERO_SUMS Sums(0.0)

uint fragment_group() { return gl_SubgroupID; }
uint fragment_lane() { return gl_SubgroupInvocationID; }

#define LOAD_ROWS(factors, at) coopMatLoadNV(factors, tile_weights, at, kPitch, false)
#define LOAD_TOKENS(factors, at) coopMatLoadNV(factors, tile_inputs, at, kPitch, true)
#define ADD_PRODUCT(rows, tokens, sums) sums = coopMatMulAddNV(rows, tokens, sums)
#define STORE_SUMS(sums, at) coopMatStoreNV(sums, tile_weights, at, 4, true)

#endif

#endif
