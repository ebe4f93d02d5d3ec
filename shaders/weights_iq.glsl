// IQ1 to IQ4: 256 weights (IQ4_NL: 32) in sub-blocks of 32. The layouts are those of
// formats/weights/ggml_iq_blocks.cpp, by parts (row_parts.glsl). A chunk is a sub-block, or a pair of
// them. Grids lie in shared memory with a byte for each weight.
#include "shaders/weight_tables.h"

#define HAS_SCALE 1
#define HAS_BIAS 0
#define HAS_TABLES 1
#define PART_SHIFT 4
#if FORMAT == MOE_QFORMAT_IQ3_XXS && defined(WIDE_CHUNKS)
#define HAS_PAIRS 1  // a chunk is two sub-blocks
const uint CHUNK = 64;
#else
#define HAS_PAIRS 0
const uint CHUNK = 32;
#endif
const uint PARTS = CHUNK / 16;

#if FORMAT == MOE_QFORMAT_IQ2_XXS
const uint BLOCK_BYTES = 66;
#define GRID MOE_GRID_IQ2_XXS
#define GRID_ENTRIES 256
#elif FORMAT == MOE_QFORMAT_IQ2_XS
const uint BLOCK_BYTES = 74;
#define GRID MOE_GRID_IQ2_XS
#define GRID_ENTRIES 512
#elif FORMAT == MOE_QFORMAT_IQ2_S
const uint BLOCK_BYTES = 82;
#define GRID MOE_GRID_IQ2_S
#define GRID_ENTRIES 1024
#elif FORMAT == MOE_QFORMAT_IQ3_XXS
const uint BLOCK_BYTES = 98;
#define GRID MOE_GRID_IQ3_XXS
#define GRID_ENTRIES 256
#elif FORMAT == MOE_QFORMAT_IQ3_S
const uint BLOCK_BYTES = 110;
#define GRID MOE_GRID_IQ3_S
#define GRID_ENTRIES 512
#elif FORMAT == MOE_QFORMAT_IQ1_S
const uint BLOCK_BYTES = 50;
#define GRID MOE_GRID_IQ1
#define GRID_ENTRIES 2048
#elif FORMAT == MOE_QFORMAT_IQ1_M
const uint BLOCK_BYTES = 56;
#define GRID MOE_GRID_IQ1
#define GRID_ENTRIES 2048
#elif FORMAT == MOE_QFORMAT_IQ4_NL
const uint BLOCK_BYTES = 18;
#else
const uint BLOCK_BYTES = 136;
#endif

#if FORMAT == MOE_QFORMAT_IQ4_NL
const uint BLOCK_CHUNKS = 1;
#else
const uint BLOCK_CHUNKS = 256 / CHUNK;
#endif
const uint BLOCKS = COLS / (CHUNK * BLOCK_CHUNKS);  // of a row
#include "shaders/row_parts.glsl"

#if FORMAT == MOE_QFORMAT_IQ4_NL || FORMAT == MOE_QFORMAT_IQ4_XS
#include "shaders/nibble_table.glsl"
void fill_tables(Halves tables, uint thread, uint threads) {
  const float values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                            1,    13,   25,  38,  53,  69,  89,  113};
  fill_nibbles(values, thread);
}
#elif FORMAT == MOE_QFORMAT_IQ3_XXS || FORMAT == MOE_QFORMAT_IQ3_S
// Four digits of three bits as bytes.
shared uint grid_bytes[GRID_ENTRIES];

uint magnitude(uint digit) {
#if FORMAT == MOE_QFORMAT_IQ3_XXS
  return digit == 7 ? 62 : 8 * digit + 4;
#else
  return 2 * digit + 1;
#endif
}

void fill_tables(Halves tables, uint thread, uint threads) {
  for (uint i = thread; i < GRID_ENTRIES; i += threads) {
    const uint entry = uint(tables.v[GRID + i]);
    grid_bytes[i] = magnitude(entry & 7u) | (magnitude((entry >> 3) & 7u) << 8) |
                    (magnitude((entry >> 6) & 7u) << 16) | (magnitude((entry >> 9) & 7u) << 24);
  }
}
#else
// Eight digits of two bits as bytes.
shared uvec2 grid_bytes[GRID_ENTRIES];

uint four_bytes(uint digits) {
  const uint spread = (digits & 3u) | ((digits & 12u) << 6) | ((digits & 48u) << 12) |
                      ((digits & 192u) << 18);
#if FORMAT == MOE_QFORMAT_IQ1_S || FORMAT == MOE_QFORMAT_IQ1_M
  return spread;
#else
  // 8, 25, 43: 8 + 17 digit, one more for digit 2.
  return 0x08080808u + spread * 17u + ((spread >> 1) & 0x01010101u);
#endif
}

void fill_tables(Halves tables, uint thread, uint threads) {
  for (uint i = thread; i < GRID_ENTRIES; i += threads) {
    const uint entry = uint(tables.v[GRID + i]);
    grid_bytes[i] = uvec2(four_bytes(entry & 255u), four_bytes(entry >> 8));
  }
}
#endif

#if HAS_PAIRS
struct Chunk {
  uint word[4];   // of each part four grid entries
  uint signs[2];  // of each sub-block as they are stored: four sets of seven bits
  vec2 scale;     // of each sub-block
};
#else
struct Chunk {
  uint word[4];    // IQ1 to IQ3: a pair of grid entries of 16 bits each, for IQ3 low bits; IQ4: nibbles
  uint high;       // IQ3_S: ninth bits of the entries; IQ1: bit of delta of each eight
  uint signs;      // IQ2, IQ3: a bit for each weight
  vec2 scale;      // of each part
};
#endif

// Seven sign bits stand for eight: the number of minus signs is even. Here for four sets, a byte each.
uint even_signs(uint sevens) {
  uint odd = sevens ^ (sevens >> 4);
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return sevens | ((odd & 0x01010101u) << 7);
}
// Four sets that follow each other.
uint packed_even_signs(uint sets) {
  return even_signs((sets & 127u) | ((sets << 1) & 0x7F00u) | ((sets << 2) & 0x7F0000u) |
                    ((sets << 3) & 0x7F000000u));
}
// The upper four of each set, where the lower four are: bits 7 * set to 7 * set + 3.
uint upper_signs(uint sets) {
  const uint pairs = sets ^ (sets >> 1);
  const uint odd = pairs ^ (pairs >> 2) ^ (pairs >> 4) ^ (sets >> 6);  // bits 7 * set
  return ((sets >> 4) & 0x00E1C387u) | ((odd << 3) & 0x01020408u);
}
// d * (1/2 + code) * factor.
float half_step(float d, uint code, float factor) { return d * (0.5 + float(code)) * factor; }

#if FORMAT == MOE_QFORMAT_IQ2_XXS
Chunk load_chunk(RowRef row, uint chunk) {
  const uvec2 two = part_load2(row, 0, 8 * chunk);
  Chunk w;
  w.scale = vec2(half_step(part_half(row, 64, 2 * (chunk / 8)), two.y >> 28, 0.25));
  w.signs = packed_even_signs(two.y);
  w.word[0] = (two.x & 255u) | ((two.x & 0xFF00u) << 8);
  w.word[1] = ((two.x >> 16) & 255u) | ((two.x >> 8) & 0xFF0000u);
  return w;
}
#elif FORMAT == MOE_QFORMAT_IQ2_XS
Chunk load_chunk(RowRef row, uint chunk) {
  const uvec2 two = part_load2(row, 0, 8 * chunk);
  const uint code = part_byte(row, 64, chunk);
  const float d = part_half(row, 72, 2 * (chunk / 8));
  Chunk w;
  w.scale = vec2(half_step(d, code & 15u, 0.25), half_step(d, code >> 4, 0.25));
  w.signs = even_signs(((two.x >> 9) & 127u) | ((two.x >> 17) & 0x7F00u) |
                       ((two.y << 7) & 0x7F0000u) | ((two.y >> 1) & 0x7F000000u));
  w.word[0] = two.x & 0x01FF01FFu;
  w.word[1] = two.y & 0x01FF01FFu;
  return w;
}
#elif FORMAT == MOE_QFORMAT_IQ2_S
Chunk load_chunk(RowRef row, uint chunk) {
  const uint low = part_load1(row, 0, 4 * chunk);
  const uint high = part_byte(row, 64, chunk);
  const uint code = part_byte(row, 72, chunk);
  const float d = part_half(row, 80, 2 * (chunk / 8));
  Chunk w;
  w.scale = vec2(half_step(d, code & 15u, 0.25), half_step(d, code >> 4, 0.25));
  w.signs = part_load1(row, 32, 4 * chunk);
  w.word[0] = (low & 255u) | ((low & 0xFF00u) << 8) | ((high & 3u) << 8) | ((high & 12u) << 22);
  w.word[1] = ((low >> 16) & 255u) | ((low >> 8) & 0xFF0000u) | ((high & 48u) << 4) |
              ((high & 192u) << 18);
  return w;
}
#elif HAS_PAIRS
Chunk load_chunk(RowRef row, uint chunk) {
  const uvec4 entries = part_load4(row, 0, 16 * chunk);
  const uvec2 words = part_load2(row, 64, 8 * chunk);
  const float d = part_half(row, 96, 2 * (chunk / 4));
  Chunk w;
  [[unroll]] for (uint i = 0; i < 4; ++i) w.word[i] = entries[i];
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    w.signs[i] = words[i];
    w.scale[i] = half_step(d, words[i] >> 28, 0.5);
  }
  return w;
}
#elif FORMAT == MOE_QFORMAT_IQ3_XXS
Chunk load_chunk(RowRef row, uint chunk) {
  const uvec2 entries = part_load2(row, 0, 8 * chunk);
  const uint word = part_load1(row, 64, 4 * chunk);
  const float d = part_half(row, 96, 2 * (chunk / 8));
  Chunk w;
  w.scale = vec2(half_step(d, word >> 28, 0.5));
  w.signs = packed_even_signs(word);
  w.word[0] = entries.x;
  w.word[1] = entries.y;
  return w;
}
#elif FORMAT == MOE_QFORMAT_IQ3_S
Chunk load_chunk(RowRef row, uint chunk) {
  const uvec2 entries = part_load2(row, 0, 8 * chunk);
  const uint code = part_byte(row, 104, chunk / 2) >> (4 * (chunk % 2));
  const float d = part_half(row, 108, 2 * (chunk / 8));
  Chunk w;
  w.high = part_byte(row, 96, chunk);
  w.scale = vec2(d * float(1 + 2 * (code & 15u)));
  w.signs = part_load1(row, 64, 4 * chunk);
  w.word[0] = entries.x;
  w.word[1] = entries.y;
  return w;
}
#elif FORMAT == MOE_QFORMAT_IQ1_S
Chunk load_chunk(RowRef row, uint chunk) {
  const uint low = part_load1(row, 0, 4 * chunk);
  const uint high = part_short(row, 32, 2 * chunk);
  const float d = part_half(row, 48, 2 * (chunk / 8));
  Chunk w;
  w.scale = vec2(d * float(2 * ((high >> 12) & 7u) + 1));
  w.high = (high >> 15) * 15u;
  w.word[0] = (low & 255u) | ((high & 7u) << 8) | ((low & 0xFF00u) << 8) | ((high & 56u) << 21);
  w.word[1] = ((low >> 16) & 255u) | ((high & 0x1C0u) << 2) | ((low >> 8) & 0xFF0000u) |
              ((high & 0xE00u) << 15);
  return w;
}
#elif FORMAT == MOE_QFORMAT_IQ1_M
Chunk load_chunk(RowRef row, uint chunk) {
  const uint sub = chunk % 8;
  const uint low = part_load1(row, 0, 4 * chunk);
  const uint high = part_short(row, 32, 2 * chunk);
  const uvec2 words = part_load2(row, 48, chunk / 8 * 8);
  const uint spread = ((words.x >> 12) & 15u) | ((words.x >> 24) & 240u) |
                      ((words.y >> 4) & 0xF00u) | ((words.y >> 16) & 0xF000u);
  const float d = unpackHalf2x16(spread).x;
  // Four scales of three bits in each 16; a sub-block has two.
  const uint scales = words[sub / 4] >> (16 * (sub / 2 % 2) + 6 * (sub % 2));
  Chunk w;
  w.scale = vec2(d * float(2 * (scales & 7u) + 1), d * float(2 * ((scales >> 3) & 7u) + 1));
  w.high = ((high >> 3) & 1u) | ((high >> 6) & 2u) | ((high >> 9) & 4u) | ((high >> 12) & 8u);
  w.word[0] = (low & 255u) | ((high & 7u) << 8) | ((low & 0xFF00u) << 8) | ((high & 0x70u) << 20);
  w.word[1] = ((low >> 16) & 255u) | (high & 0x700u) | ((low >> 8) & 0xFF0000u) |
              ((high & 0x7000u) << 12);
  return w;
}
#elif FORMAT == MOE_QFORMAT_IQ4_NL
Chunk load_chunk(RowRef row, uint chunk) {
  const uvec4 four = part_load4(row, 0, 16 * chunk);
  Chunk w;
  w.scale = vec2(part_half(row, 16, 2 * chunk));
  [[unroll]] for (uint i = 0; i < 4; ++i) w.word[i] = four[i];
  return w;
}
#else
Chunk load_chunk(RowRef row, uint chunk) {
  const uint sub = chunk % 8;
  const uvec2 head = part_load2(row, 128, chunk / 8 * 8);
  const uvec4 four = part_load4(row, 0, 16 * chunk);
  const uint code = ((head.y >> (4 * sub)) & 15u) | (((head.x >> (16 + 2 * sub)) & 3u) << 4);
  Chunk w;
  w.scale = vec2(unpackHalf2x16(head.x).x * (float(code) - 32.0));
  [[unroll]] for (uint i = 0; i < 4; ++i) w.word[i] = four[i];
  return w;
}
#endif

#if HAS_PAIRS
// Products of bytes alone take pairs.
#elif FORMAT == MOE_QFORMAT_IQ4_NL || FORMAT == MOE_QFORMAT_IQ4_XS
void part_codes(Chunk w, uint part, out float code[16]) {
  [[unroll]] for (uint i = 0; i < 16; ++i) {
    code[i] = nibble_value(w.word[i / 4], 8 * (i % 4) + 4 * part);
  }
}
#elif FORMAT == MOE_QFORMAT_IQ3_XXS || FORMAT == MOE_QFORMAT_IQ3_S
void part_codes(Chunk w, uint part, out float code[16]) {
  [[unroll]] for (uint four = 0; four < 4; ++four) {
    uint entry = (w.word[part] >> (8 * four)) & 255u;
#if FORMAT == MOE_QFORMAT_IQ3_S
    entry |= ((w.high >> (4 * part + four)) & 1u) << 8;
#endif
    const uint bytes = grid_bytes[entry];
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      code[4 * four + i] = with_sign(field(bytes, 8 * i, 8), w.signs, 16 * part + 4 * four + i);
    }
  }
}
#else
void part_codes(Chunk w, uint part, out float code[16]) {
  [[unroll]] for (uint eight = 0; eight < 2; ++eight) {
    const uvec2 bytes = grid_bytes[(w.word[part] >> (16 * eight)) & 0xFFFFu];
    [[unroll]] for (uint i = 0; i < 8; ++i) {
      const float value = field(bytes[i / 4], 8 * (i % 4), 8);
#if FORMAT == MOE_QFORMAT_IQ1_S || FORMAT == MOE_QFORMAT_IQ1_M
      const float delta = with_sign(0.125, w.high, 2 * part + eight);
      code[8 * eight + i] = (value - 1.0) + delta;
#else
      code[8 * eight + i] = with_sign(value, w.signs, 16 * part + 8 * eight + i);
#endif
    }
  }
}
#endif

vec2 part_scale(Chunk w, uint part) { return vec2(w.scale[HAS_PAIRS != 0 ? part / 2 : part], 0); }
