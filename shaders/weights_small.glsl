// MXFP4 and NVFP4, and codes of one bit, two bits and three values. The layouts are those of
// formats/weights/ggml_small_blocks.cpp, by parts (row_parts.glsl).
#define HAS_SCALE 1
#define HAS_BIAS 0

#if FORMAT == MOE_QFORMAT_MXFP4
#define HAS_TABLES 1
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 32;
const uint BLOCK_BYTES = 17;
#elif FORMAT == MOE_QFORMAT_NVFP4
#define HAS_TABLES 1
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 64;
const uint BLOCK_BYTES = 36;
#elif FORMAT == MOE_QFORMAT_Q1_0
#define HAS_TABLES 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 128;
const uint BLOCK_BYTES = 18;
#elif FORMAT == MOE_QFORMAT_Q2_0
#define HAS_TABLES 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 64;
const uint BLOCK_BYTES = 18;
#elif FORMAT == MOE_QFORMAT_TQ1_0
#define HAS_TABLES 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 256;
const uint BLOCK_BYTES = 54;
#elif FORMAT == MOE_QFORMAT_TQ2_0
#define HAS_TABLES 0
#define PART_SHIFT 5
const uint CHUNK = 64;
const uint BLOCK_VALUES = 256;
const uint BLOCK_BYTES = 66;
#endif
const uint PARTS = CHUNK / 16;
const uint BLOCK_CHUNKS = BLOCK_VALUES / CHUNK;
const uint BLOCKS = COLS / BLOCK_VALUES;  // of a row
#include "shaders/row_parts.glsl"

struct Chunk {
  uint word[4];
  uint index;  // of the chunk in its block
  float scale[2];
};

// Half of 2^(e - 127), a number for every byte e.
float half_of_e8m0(uint e) {
  return uintBitsToFloat(e > 1 ? (e - 1) << 23 : 0x00200000u << e);
}
// Half of the unsigned E4M3 float; bit 7 is not looked at, and the code of NaN is zero.
float half_of_ue4m3(uint bits) {
  if (bits == 0 || bits == 0x7f) return 0;
  const uint exponent = (bits >> 3) & 15u;
  const uint mantissa = bits & 7u;
  if (exponent == 0) return float(mantissa) * 0.0009765625;
  return uintBitsToFloat(((exponent + 119) << 23) | (mantissa << 20));
}

#if FORMAT == MOE_QFORMAT_TQ1_0
// Digit of weight i of the block whose digits begin at `block`. A byte is the value of its digits times 256 / 243, rounded up, so that
// multiplying shifts digits out on top.
uint ternary_digit(uint64_t block, uint i) {
  const uint from = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
  const uint digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
  const uint power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
  return (((load_byte(block + from) * power) & 255u) * 3) >> 8;
}
#endif

#if HAS_TABLES
#include "shaders/nibble_table.glsl"
void fill_tables(Halves tables, uint thread, uint threads) {
  const float values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  fill_nibbles(values, thread);
}
#endif

Chunk load_chunk(RowRef row, uint chunk) {
  const uint block = chunk / BLOCK_CHUNKS;
  uvec4 four = uvec4(0);
  Chunk w;
  w.index = chunk % BLOCK_CHUNKS;
#if FORMAT == MOE_QFORMAT_MXFP4
  w.scale[0] = w.scale[1] = half_of_e8m0(part_byte(row, 16, chunk));
  four = part_load4(row, 0, 16 * chunk);
#elif FORMAT == MOE_QFORMAT_NVFP4
  const uint scales = part_load1(row, 32, 4 * block) >> (16 * w.index);
  w.scale[0] = half_of_ue4m3(scales & 255u);
  w.scale[1] = half_of_ue4m3((scales >> 8) & 255u);
  four = part_load4(row, 0, 16 * chunk);
#elif FORMAT == MOE_QFORMAT_Q1_0
  w.scale[0] = w.scale[1] = part_half(row, 16, 2 * block);
  four.x = part_load1(row, 0, 4 * chunk);
#elif FORMAT == MOE_QFORMAT_Q2_0
  w.scale[0] = w.scale[1] = part_half(row, 16, 2 * block);
  four.xy = part_load2(row, 0, 8 * chunk);
#elif FORMAT == MOE_QFORMAT_TQ1_0
  w.scale[0] = w.scale[1] = part_half(row, 52, 2 * block);
  [[unroll]] for (uint i = 0; i < 32; ++i) {
    four[i / 16] |= ternary_digit(part_address(row, 0, 52 * block), 32 * w.index + i)
                    << (2 * (i % 16));
  }
#elif FORMAT == MOE_QFORMAT_TQ2_0
  w.scale[0] = w.scale[1] = part_half(row, 64, 2 * block);
  four = part_load4(row, 0, 16 * chunk);
#endif
  [[unroll]] for (uint i = 0; i < 4; ++i) w.word[i] = four[i];
  return w;
}

void part_codes(Chunk w, uint part, out float code[16]) {
  [[unroll]] for (uint i = 0; i < 16; ++i) {
#if FORMAT == MOE_QFORMAT_MXFP4
    code[i] = nibble_value(w.word[i / 4], 8 * (i % 4) + 4 * part);
#elif FORMAT == MOE_QFORMAT_NVFP4
    code[i] = nibble_value(w.word[2 * part + i % 8 / 4], 8 * (i % 4) + 4 * (i / 8));
#elif FORMAT == MOE_QFORMAT_Q1_0
    code[i] = field(w.word[0], 16 * part + i, 1) * 2.0 - 1.0;
#elif FORMAT == MOE_QFORMAT_TQ2_0
    code[i] = field_less(w.word[i / 4], 8 * (i % 4) + 2 * part, 2, 1.0);
#else
    code[i] = field_less(w.word[part], 2 * i, 2, 1.0);
#endif
  }
}

vec2 part_scale(Chunk w, uint part) { return vec2(w.scale[part % 2], 0); }
