// MXFP4 and NVFP4, and codes of one bit, two bits and three values. The layouts are those of
// formats/weights/ggml_small_blocks.cpp, MXFP4 by parts (row_parts.glsl).
#define HAS_SCALE 1
#define HAS_BIAS 0

#if FORMAT == MOE_QFORMAT_MXFP4
#define HAS_TABLES 1
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 32;
const uint BLOCK_BYTES = 17;
const uint BLOCK_ALIGN = 1;
#elif FORMAT == MOE_QFORMAT_NVFP4
#define HAS_TABLES 1
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 64;
const uint BLOCK_BYTES = 36;
const uint BLOCK_ALIGN = 4;
#elif FORMAT == MOE_QFORMAT_Q1_0
#define HAS_TABLES 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 128;
const uint BLOCK_BYTES = 18;
const uint BLOCK_ALIGN = 2;
#elif FORMAT == MOE_QFORMAT_Q2_0
#define HAS_TABLES 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 64;
const uint BLOCK_BYTES = 18;
const uint BLOCK_ALIGN = 2;
#elif FORMAT == MOE_QFORMAT_TQ1_0
#define HAS_TABLES 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint BLOCK_VALUES = 256;
const uint BLOCK_BYTES = 54;
const uint BLOCK_ALIGN = 2;
#elif FORMAT == MOE_QFORMAT_TQ2_0
#define HAS_TABLES 0
#define PART_SHIFT 5
const uint CHUNK = 64;
const uint BLOCK_VALUES = 256;
const uint BLOCK_BYTES = 66;
const uint BLOCK_ALIGN = 2;
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

RowRef row_ref(uint64_t codes, uint64_t scales, uint64_t biases, uint row) {
  return RowRef(codes + uint64_t(row) * (BLOCKS * BLOCK_BYTES), 0, 0);
}

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
// Digit of weight i. A byte is the value of its digits times 256 / 243, rounded up, so that
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
  const uint64_t at = row.codes + (chunk / BLOCK_CHUNKS) * BLOCK_BYTES;
  const uint align = min(CODE_ALIGN, BLOCK_ALIGN);
  uvec4 four = uvec4(0);
  Chunk w;
  w.index = chunk % BLOCK_CHUNKS;
#if FORMAT == MOE_QFORMAT_MXFP4
  w.scale[0] = w.scale[1] = half_of_e8m0(part_byte(row, 16, chunk));
  four = part_load4(row, 0, 16 * chunk);
#elif FORMAT == MOE_QFORMAT_NVFP4
  const uint scales = load1(at, align) >> (16 * w.index);
  w.scale[0] = half_of_ue4m3(scales & 255u);
  w.scale[1] = half_of_ue4m3((scales >> 8) & 255u);
  four = load4(at + 4 + 16 * w.index, align);
#elif FORMAT == MOE_QFORMAT_Q1_0
  w.scale[0] = w.scale[1] = load_half(at);
  four.x = load1(at + 2 + 4 * w.index, align);
#elif FORMAT == MOE_QFORMAT_Q2_0
  w.scale[0] = w.scale[1] = load_half(at);
  four.xy = load2(at + 2 + 8 * w.index, align);
#elif FORMAT == MOE_QFORMAT_TQ1_0
  w.scale[0] = w.scale[1] = load_half(at + 52);
  [[unroll]] for (uint i = 0; i < 32; ++i) {
    four[i / 16] |= ternary_digit(at, 32 * w.index + i) << (2 * (i % 16));
  }
#elif FORMAT == MOE_QFORMAT_TQ2_0
  w.scale[0] = w.scale[1] = load_half(at + 64);
  four = load4(at + 16 * w.index, align);
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
