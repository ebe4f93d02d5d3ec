// Small floats whose scale is a float32, or several. The layouts are those of
// formats/weights/float_blocks.h, by parts (row_parts.glsl). The codes of NaN, which converting refuses,
// are numbers here.
#define HAS_SCALE 1
#define HAS_BIAS 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint PARTS = 2;

#if FORMAT == MOE_QFORMAT_F8_E4M3
#define HAS_TABLES 0
const uint BLOCK_VALUES = 128;
const uint BLOCK_BYTES = 132;
const uint CHUNK_WORDS = 8;
#elif FORMAT == MOE_QFORMAT_MXFP8
#define HAS_TABLES 0
const uint BLOCK_VALUES = 32;
const uint BLOCK_BYTES = 33;
const uint CHUNK_WORDS = 8;
#else
#define HAS_TABLES 1
const uint BLOCK_VALUES = 128;
const uint BLOCK_BYTES = 76;
const uint CHUNK_WORDS = 4;
#endif
const uint BLOCK_CHUNKS = BLOCK_VALUES / CHUNK;
const uint BLOCKS = COLS / BLOCK_VALUES;  // of a row
#include "shaders/row_parts.glsl"

struct Chunk {
  uint word[CHUNK_WORDS];
  float scale[2];
};

// Bytes 0 and 2 of a word as E4M3: as binary16 with as many bits of exponent they are 2^8 too small.
vec2 e4m3_pair(uint word) {
  return unpackHalf2x16(((word & 0x00800080u) << 8) | ((word & 0x007f007fu) << 7)) * 256.0;
}

#if HAS_TABLES
#include "shaders/nibble_table.glsl"
void fill_tables(Halves tables, uint thread, uint threads) {
  const float values[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
  fill_nibbles(values, thread);
}

// x / y, rounded as IEEE 754 says: of GLSL's quotient, which may be some units in the last place off,
// the remainder tells how many. `x` is an E4M3 float, whose few bits leave the remainder's low word
// to the product alone; y > 0.
float exact_quotient(float x, float y) {
  const float q = x / y;
  const uint bits = floatBitsToUint(q);
  const uint exponent = (bits >> 23) & 255u;
  if (exponent == 0 || exponent == 255) return q;
  const int divisor = int((floatBitsToUint(y) & 0x7fffffu) | 0x800000u);
  uint fraction = (bits & 0x7fffffu) | 0x800000u;
  int rest = -int(fraction * uint(divisor));
  if (rest < 0 && fraction == 0x800000u) rest *= 2;  // below a power of two units are half as large
  int units = 0;
  [[unroll]] for (uint turn = 0; turn < 4; ++turn) {
    const int step_by = 2 * rest > divisor ? 1 : 2 * rest < -divisor ? -1 : 0;
    rest -= step_by * divisor;
    units += step_by;
  }
  return uintBitsToFloat(bits + uint(units));
}
float scale_of(float code, float factor) {
  precise float product = code * factor;
  return factor < 0.0 ? exact_quotient(code, -factor) : product;
}
#endif

Chunk load_chunk(RowRef row, uint chunk) {
  const uint block = chunk / BLOCK_CHUNKS;
  Chunk w;
#if HAS_TABLES
  const float factor = uintBitsToFloat(part_load1(row, 72, 4 * block));
  const uint pair = part_short(row, 64, 2 * chunk);
  const vec2 codes = e4m3_pair((pair & 255u) | ((pair & 0xFF00u) << 8));
  w.scale[0] = scale_of(codes.x, factor);
  w.scale[1] = scale_of(codes.y, factor);
  const uvec4 four = part_load4(row, 0, 16 * chunk);
  [[unroll]] for (uint i = 0; i < 4; ++i) w.word[i] = four[i];
#else
#if FORMAT == MOE_QFORMAT_MXFP8
  const uint e = part_byte(row, 32, chunk);
  w.scale[0] = w.scale[1] = uintBitsToFloat(e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : e << 23);
#else
  w.scale[0] = w.scale[1] = uintBitsToFloat(part_load1(row, 128, 4 * block));
#endif
  const uvec4 low = part_load4(row, 0, 32 * chunk);
  const uvec4 high = part_load4(row, 0, 32 * chunk + 16);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    w.word[i] = low[i];
    w.word[4 + i] = high[i];
  }
#endif
  return w;
}

void part_codes(Chunk w, uint part, out float code[16]) {
#if HAS_TABLES
  [[unroll]] for (uint i = 0; i < 16; ++i) {
    code[i] = nibble_value(w.word[2 * part + i / 8], 4 * (i % 8));
  }
#else
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint word = w.word[4 * part + i];
    const vec2 even = e4m3_pair(word);
    const vec2 odd = e4m3_pair(word >> 8);
    code[4 * i] = even.x;
    code[4 * i + 1] = odd.x;
    code[4 * i + 2] = even.y;
    code[4 * i + 3] = odd.y;
  }
#endif
}

vec2 part_scale(Chunk w, uint part) { return vec2(w.scale[part % 2], 0); }
