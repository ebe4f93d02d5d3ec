// The codes of a weight format as signed bytes, for products of integers: of the part of a chunk
// (weights.glsl) four words of four bytes,
//   weight = byte_scale().x * byte + byte_scale().y     (y only where HAS_SUMS)
// SCALE_PARTS: parts with one scale, of weights that follow each other: 1, or 2 for 32 of them.
// Byte i of word j is the part's weight column_of(j, i); IS_IN_ORDER: 4 * j + i.
#ifndef MOEPACK_SHADERS_FIXED_CODES_GLSL
#define MOEPACK_SHADERS_FIXED_CODES_GLSL

// Four bits as the lowest bits of four bytes.
uint spread_bits(uint four) { return ((four & 15u) * 0x00204081u) & 0x01010101u; }
// Bytes above zero, negative where the bit is set.
uint signed_bytes(uint bytes, uint four) {
  const uint minus = spread_bits(four);
  return (bytes ^ (minus * 255u)) + minus;
}

#if FORMAT >= MOE_QFORMAT_Q2 && FORMAT <= MOE_QFORMAT_Q8
#define HAS_SUMS 1
#define SCALE_PARTS 2
#if FORMAT == MOE_QFORMAT_Q2
#define IS_IN_ORDER 0
uint column_of(uint word, uint i) { return 4 * i + word; }
uint part_word(Chunk w, uint part, uint word) { return (w.word[part] >> (2 * word)) & 0x03030303u; }
#elif FORMAT == MOE_QFORMAT_Q4
#define IS_IN_ORDER 0
uint column_of(uint word, uint i) { return word / 2 * 8 + 2 * i + word % 2; }
uint part_word(Chunk w, uint part, uint word) {
  return (w.word[2 * part + word / 2] >> (4 * (word % 2))) & 0x0F0F0F0Fu;
}
#elif FORMAT == MOE_QFORMAT_Q8
#define IS_IN_ORDER 1
uint part_word(Chunk w, uint part, uint word) { return w.word[4 * part + word] ^ 0x80808080u; }
#else
#define IS_IN_ORDER 1
uint part_word(Chunk w, uint part, uint word) {
  uint bytes = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint bit = (16 * part + 4 * word + i) * BITS;
    const uint shift = bit % 32;
    uint code = w.word[bit / 32] >> shift;
    if (shift + BITS > 32) code |= w.word[bit / 32 + 1] << (32 - shift);
    bytes |= (code & ((1u << BITS) - 1u)) << (8 * i);
  }
  return bytes;
}
#endif
vec2 byte_scale(Chunk w, uint part) {
  vec2 scale = part_scale(w, part);
#if FORMAT == MOE_QFORMAT_Q8
  scale.y = fma(128.0, scale.x, scale.y);
#endif
  return scale;
}

#elif FORMAT >= MOE_QFORMAT_Q4_0 && FORMAT <= MOE_QFORMAT_Q8_0
#define IS_IN_ORDER 1
#define SCALE_PARTS 2
#if FORMAT == MOE_QFORMAT_Q8_0
#define HAS_SUMS 0
uint part_word(Chunk w, uint part, uint word) { return w.word[4 * part + word]; }
vec2 byte_scale(Chunk w, uint part) { return vec2(part_scale(w, part).x, 0); }
#else
#define HAS_SUMS 1
uint part_word(Chunk w, uint part, uint word) {
  const uint low = (w.word[word] >> (4 * part)) & 0x0F0F0F0Fu;
#if FORMAT == MOE_QFORMAT_Q5_0 || FORMAT == MOE_QFORMAT_Q5_1
  return low | (spread_bits(w.high >> (16 * part + 4 * word)) << 4);
#else
  return low;
#endif
}
vec2 byte_scale(Chunk w, uint part) {
  const vec2 scale = part_scale(w, part);
  return HAS_BIAS != 0 ? scale : vec2(scale.x, -ZERO * scale.x);
}
#endif

#elif FORMAT >= MOE_QFORMAT_Q2_K && FORMAT <= MOE_QFORMAT_Q6_K
#define IS_IN_ORDER 1
#define HAS_SUMS 1
#define SCALE_PARTS 1
#if FORMAT == MOE_QFORMAT_Q2_K
uint part_word(Chunk w, uint part, uint word) { return (w.low[word] >> (2 * part)) & 0x03030303u; }
#elif FORMAT == MOE_QFORMAT_Q3_K
uint part_word(Chunk w, uint part, uint word) {
  return ((w.low[word] >> (2 * part)) & 0x03030303u) |
         (((w.high[word] >> (4 * (w.index / 2) + part)) & 0x01010101u) << 2);
}
#elif FORMAT == MOE_QFORMAT_Q4_K
uint part_word(Chunk w, uint part, uint word) { return (w.low[word] >> (4 * part)) & 0x0F0F0F0Fu; }
#elif FORMAT == MOE_QFORMAT_Q5_K
uint part_word(Chunk w, uint part, uint word) {
  return ((w.low[word] >> (4 * part)) & 0x0F0F0F0Fu) |
         (((w.high[word] >> (w.index / 2 * 2 + part)) & 0x01010101u) << 4);
}
#else
uint part_word(Chunk w, uint part, uint word) {
  return ((w.low[word] >> (4 * part)) & 0x0F0F0F0Fu) |
         (((w.high[word] >> (2 * (w.index % 4 / 2) + 4 * part)) & 0x03030303u) << 4);
}
#endif
vec2 byte_scale(Chunk w, uint part) {
  const vec2 scale = part_scale(w, part);
#if FORMAT == MOE_QFORMAT_Q3_K
  return vec2(scale.x, -4.0 * scale.x);
#elif FORMAT == MOE_QFORMAT_Q6_K
  return vec2(scale.x, -32.0 * scale.x);
#else
  return scale;
#endif
}

#elif FORMAT >= MOE_QFORMAT_IQ2_XXS && FORMAT <= MOE_QFORMAT_IQ1_M
#define IS_IN_ORDER 1
#define HAS_SUMS 0
#if FORMAT == MOE_QFORMAT_IQ2_XS || FORMAT == MOE_QFORMAT_IQ2_S
#define SCALE_PARTS 1
#else
#define SCALE_PARTS 2
#endif
#if FORMAT == MOE_QFORMAT_IQ4_NL || FORMAT == MOE_QFORMAT_IQ4_XS
uint part_word(Chunk w, uint part, uint word) {
  return nibble_bytes(w.word[word] >> (4 * part));
}
#elif HAS_PAIRS
uint part_word(Chunk w, uint part, uint word) {
  const uint sets = w.signs[part / 2];
  const uint set = part % 2 * 2 + word / 2;
  const uint signs = (word % 2 == 0 ? sets : upper_signs(sets)) >> (7 * set);
  return signed_bytes(grid_bytes[(w.word[part] >> (8 * word)) & 255u], signs);
}
#elif FORMAT == MOE_QFORMAT_IQ3_S
uint part_word(Chunk w, uint part, uint word) {
  uint entry = (w.word[part] >> (8 * word)) & 255u;
  entry |= ((w.high >> (4 * part + word)) & 1u) << 8;
  return signed_bytes(grid_bytes[entry], w.signs >> (16 * part + 4 * word));
}
#else
uint part_word(Chunk w, uint part, uint word) {
  const uvec2 bytes = grid_bytes[(w.word[part] >> (16 * (word / 2))) & 0xFFFFu];
  return signed_bytes(bytes[word % 2], w.signs >> (16 * part + 4 * word));
}
#endif
vec2 byte_scale(Chunk w, uint part) { return part_scale(w, part); }

#else  // MXFP4 and NVFP4
#define IS_IN_ORDER 1
#define HAS_SUMS 0
#if FORMAT == MOE_QFORMAT_NVFP4
#define SCALE_PARTS 1
uint part_word(Chunk w, uint part, uint word) {
  return nibble_bytes(w.word[2 * part + word % 2] >> (4 * (word / 2)));
}
#else
#define SCALE_PARTS 2
uint part_word(Chunk w, uint part, uint word) {
  return nibble_bytes(w.word[word] >> (4 * part));
}
#endif
vec2 byte_scale(Chunk w, uint part) { return part_scale(w, part); }
#endif

#endif
