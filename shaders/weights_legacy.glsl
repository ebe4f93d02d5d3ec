// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 weights with one scale. The layouts are those of
// formats/weights/ggml_legacy_blocks.cpp, by parts (row_parts.glsl). The first half of the weights are the low nibbles.
#define HAS_SCALE 1
#define HAS_TABLES 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint PARTS = 2;

#if FORMAT == MOE_QFORMAT_Q4_0
#define HAS_BIAS 0
const uint BLOCK_BYTES = 18;
const float ZERO = 8;
#elif FORMAT == MOE_QFORMAT_Q4_1
#define HAS_BIAS 1
const uint BLOCK_BYTES = 20;
const float ZERO = 0;
#elif FORMAT == MOE_QFORMAT_Q5_0
#define HAS_BIAS 0
const uint BLOCK_BYTES = 22;
const float ZERO = 16;
#elif FORMAT == MOE_QFORMAT_Q5_1
#define HAS_BIAS 1
const uint BLOCK_BYTES = 24;
const float ZERO = 0;
#else
#define HAS_BIAS 0
const uint BLOCK_BYTES = 34;
const float ZERO = 128;
#endif

#if FORMAT == MOE_QFORMAT_Q8_0
const uint CODE_WORDS = 8;
#else
const uint CODE_WORDS = 4;
#endif

const uint BLOCKS = COLS / CHUNK;  // of a row
#include "shaders/row_parts.glsl"
// Bytes of a block before its fifth bits and before its scale, by parts.
const uint HIGH_AT = 4 * CODE_WORDS;
#if FORMAT == MOE_QFORMAT_Q5_0 || FORMAT == MOE_QFORMAT_Q5_1
const uint SCALE_AT = HIGH_AT + 4;
#else
const uint SCALE_AT = HIGH_AT;
#endif

struct Chunk {
  uint word[CODE_WORDS];
  uint high;
  uint scale;  // the lower 16 bits; of the upper ones, where there is a minimum, that
};

Chunk load_chunk(RowRef row, uint chunk) {
  Chunk w;
  [[unroll]] for (uint i = 0; i < CODE_WORDS; i += 4) {
    const uvec4 four = part_load4(row, 0, 4 * (CODE_WORDS * chunk + i));
    [[unroll]] for (uint j = 0; j < 4; ++j) w.word[i + j] = four[j];
  }
  w.high = 0;
#if FORMAT == MOE_QFORMAT_Q5_0 || FORMAT == MOE_QFORMAT_Q5_1
  w.high = part_load1(row, HIGH_AT, 4 * chunk);
#endif
#if HAS_BIAS
  w.scale = part_load1(row, SCALE_AT, 4 * chunk);
#else
  w.scale = part_short(row, SCALE_AT, 2 * chunk);
#endif
  return w;
}

void part_codes(Chunk w, uint part, out float code[16]) {
  [[unroll]] for (uint i = 0; i < 16; ++i) {
#if FORMAT == MOE_QFORMAT_Q8_0
    // Signed bytes: 128 more, and off again.
    code[i] = field_less(w.word[4 * part + i / 4] ^ 0x80808080u, 8 * (i % 4), 8, ZERO);
#elif FORMAT == MOE_QFORMAT_Q5_0 || FORMAT == MOE_QFORMAT_Q5_1
    const uint bit = 16 * part + i;
    const uint fifth = bit < 4 ? w.high << (4 - bit) : w.high >> (bit - 4);
    const uint low = w.word[i / 4] >> (8 * (i % 4) + 4 * part);
    code[i] = field_less((low & 15u) | (fifth & 16u), 0, 5, ZERO);
#else
    code[i] = field_less(w.word[i / 4], 8 * (i % 4) + 4 * part, 4, ZERO);
#endif
  }
}

vec2 part_scale(Chunk w, uint part) { return unpackHalf2x16(w.scale); }
