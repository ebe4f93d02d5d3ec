// The bytes of a weight format as numbers, for the format -DFORMAT=MOE_QFORMAT_x. Decoded weights
// equal formats/weights/qcodec.h's to the bit.
//
// A lane takes a row in chunks of CHUNK weights, each of PARTS parts of PART consecutive weights that
// share a scale: weight = scale * code + bias (bias only where HAS_BIAS, scale only where HAS_SCALE).
// The parts of a chunk are those whose codes share bytes; they need not follow each other in the row.
//   Chunk load_chunk(RowRef row, uint chunk)      the bytes
//   void part_codes(Chunk, uint part, out float code[PART])
//   vec2 part_scale(Chunk, uint part)             scale and bias
// Formats with codes that are cheaper to have too large (HAS_RAISED) have also
//   void raised_codes(Chunk, uint part, out float code[PART])   code i + raise_of(i)
//   float raise_of(uint i)
// Formats with tables (HAS_TABLES) call fill_tables() and a barrier first.
//
// Memory is read in 32-bit words at most: up to the next multiple of four bytes behind a row.
#ifndef MOEPACK_SHADERS_WEIGHTS_GLSL
#define MOEPACK_SHADERS_WEIGHTS_GLSL

#include "formats/weights/qformat_defs.h"

// The numbering is that of runtime/vulkan/weight_kernels.h.
layout(constant_id = 1) const uint COLS = 0;         // inputs of a row
layout(constant_id = 2) const uint CODE_ALIGN = 16;  // bytes, a power of two <= 16: of every row
layout(constant_id = 3) const uint GROUP = 64;       // affine: weights that share scale and bias
layout(constant_id = 4) const uint SCALE_F16 = 0;    // affine: scales are binary16, else bfloat16

// A row of a matrix: where its components begin.
struct RowRef {
  uint64_t codes;
  uint64_t scales;
  uint64_t biases;
};

// ---- words at any alignment ---------------------------------------------------------------------

// 32 bits of the two words, from bit `shift` (0 to 32) on.
uint funnel(uint low, uint high, uint shift) {
  return uint(packUint2x32(uvec2(low, high)) >> shift);
}

// `align` is what the address is a multiple of.
uint load1(uint64_t at, uint align) {
  if (align >= 4) return Words(at).v[0];
  if (align == 2) return uint(Halves(at).v[0]) | (uint(Halves(at).v[1]) << 16);
  Words down = Words(at & ~uint64_t(3));
  const uint shift = (uint(at) & 3) * 8;
  return funnel(down.v[0], down.v[shift == 0 ? 0 : 1], shift);
}

uvec2 load2(uint64_t at, uint align) {
  if (align >= 8) return Words2(at).v[0];
  if (align >= 4) return uvec2(Words(at).v[0], Words(at).v[1]);
  Words down = Words(at & ~uint64_t(3));
  const uint shift = (uint(at) & 3) * 8;
  const uint middle = down.v[1];
  return uvec2(funnel(down.v[0], middle, shift), funnel(middle, down.v[shift == 0 ? 1 : 2], shift));
}

uvec4 load4(uint64_t at, uint align) {
  if (align >= 16) return Words4(at).v[0];
  if (align >= 8) return uvec4(Words2(at).v[0], Words2(at).v[1]);
  Words down = Words(at & ~uint64_t(3));
  const uvec4 w = uvec4(down.v[0], down.v[1], down.v[2], down.v[3]);
  if (align >= 4) return w;
  const uint shift = (uint(at) & 3) * 8;
  const uint last = down.v[shift == 0 ? 3 : 4];
  return uvec4(funnel(w.x, w.y, shift), funnel(w.y, w.z, shift), funnel(w.z, w.w, shift),
               funnel(w.w, last, shift));
}

// A binary16 at an even address.
float load_half(uint64_t at) { return unpackHalf2x16(uint(Halves(at).v[0])).x; }
uint load_byte(uint64_t at) { return uint(Bytes(at).v[0]); }

// ---- codes as floats ----------------------------------------------------------------------------

// Bits [place, place + bits) of a word as a number less `zero`, exactly. They become bits of a float
// around 2^23, which costs less than a conversion.
float field_less(uint word, uint place, uint bits, float zero) {
  const uint shift = place + bits > 23 ? 16 : 0;
  const uint at = place - shift;
  const uint mask = ((1u << bits) - 1u) << at;
  const float high = uintBitsToFloat(((word >> shift) & mask) | 0x4B000000u);
  const float unit = uintBitsToFloat((127u - at) << 23);  // 2^-at
  return fma(high, unit, -(8388608.0 * unit + zero));
}
float field(uint word, uint place, uint bits) { return field_less(word, place, bits, 0); }

float with_sign(float magnitude, uint signs, uint bit) {
  return uintBitsToFloat(floatBitsToUint(magnitude) ^ ((signs << (31 - bit)) & 0x80000000u));
}

#if FORMAT == MOE_QFORMAT_F32 || FORMAT == MOE_QFORMAT_F16 || FORMAT == MOE_QFORMAT_BF16
#include "shaders/weights_plain.glsl"
#elif FORMAT >= MOE_QFORMAT_Q2 && FORMAT <= MOE_QFORMAT_Q8
#include "shaders/weights_affine.glsl"
#elif FORMAT >= MOE_QFORMAT_Q4_0 && FORMAT <= MOE_QFORMAT_Q8_0
#include "shaders/weights_legacy.glsl"
#elif FORMAT >= MOE_QFORMAT_Q2_K && FORMAT <= MOE_QFORMAT_Q6_K
#include "shaders/weights_k.glsl"
#elif FORMAT >= MOE_QFORMAT_IQ2_XXS && FORMAT <= MOE_QFORMAT_IQ1_M
#include "shaders/weights_iq.glsl"
#elif FORMAT >= MOE_QFORMAT_FIRST_OWN
#include "shaders/weights_float.glsl"
#else
#include "shaders/weights_small.glsl"
#endif

#ifndef HAS_RAISED
#define HAS_RAISED 0
#endif

// ---- places in a row ----------------------------------------------------------------------------

// A format says how the bits of a column are split, from the lowest: PART; bits that count chunks,
// up to PART_SHIFT; bits that count the parts of a chunk; the rest, which count chunks again.
const uint PART = CHUNK / PARTS;
const uint VECTORS = CHUNK / 4;  // of four weights, in a chunk
const uint CHUNKS = (COLS + CHUNK - 1) / CHUNK;
const uint CHUNKS_BELOW = (1 << PART_SHIFT) / PART;

uint part_column(uint chunk, uint part) {
  return ((chunk / CHUNKS_BELOW) * PARTS + part) * (CHUNKS_BELOW * PART) +
         (chunk % CHUNKS_BELOW) * PART;
}
// Of a column: the chunk, and its place among the chunk's CHUNK weights.
uvec2 chunk_place(uint column) {
  const uint below = column % (CHUNKS_BELOW * PART);
  const uint above = column / (CHUNKS_BELOW * PART);
  return uvec2((above / PARTS) * CHUNKS_BELOW + below / PART, (above % PARTS) * PART + below % PART);
}

#endif
