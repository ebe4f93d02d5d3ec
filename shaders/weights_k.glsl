// Q2_K to Q6_K: 256 weights in sub-blocks whose scales (and minima) are codes themselves. The
// layouts are those of formats/weights/ggml_k_blocks.cpp, by parts (row_parts.glsl). A chunk is what
// 16 bytes of low bits stand for: parts of 16 weights that lie 32 or 64 columns apart.
#define HAS_SCALE 1
#define HAS_TABLES 0

#if FORMAT == MOE_QFORMAT_Q2_K
#define HAS_BIAS 1
#define PART_SHIFT 5
const uint CHUNK = 64;
const uint BLOCK_BYTES = 84;
#elif FORMAT == MOE_QFORMAT_Q3_K
#define HAS_BIAS 0
#define PART_SHIFT 5
const uint CHUNK = 64;
const uint BLOCK_BYTES = 110;
#elif FORMAT == MOE_QFORMAT_Q4_K
#define HAS_BIAS 1
#define PART_SHIFT 5
const uint CHUNK = 32;
const uint BLOCK_BYTES = 144;
#elif FORMAT == MOE_QFORMAT_Q5_K
#define HAS_BIAS 1
#define PART_SHIFT 5
const uint CHUNK = 32;
const uint BLOCK_BYTES = 176;
#else
#define HAS_BIAS 0
#define PART_SHIFT 6
const uint CHUNK = 32;
const uint BLOCK_BYTES = 210;
#endif
const uint PARTS = CHUNK / 16;
const uint BLOCK_CHUNKS = 256 / CHUNK;
const uint BLOCKS = COLS / 256;  // of a row
#include "shaders/row_parts.glsl"

struct Chunk {
  uvec4 low;            // the codes' low bits
  uvec4 high;           // bytes that hold their upper bits
  uint index;           // of the chunk in its block
  vec2 scale[PARTS];    // and bias
};

#if FORMAT == MOE_QFORMAT_Q4_K || FORMAT == MOE_QFORMAT_Q5_K
// Pair `pair` of the twelve bytes that hold eight pairs of six bits: scale, minimum.
vec2 packed_pair(uint bytes[3], uint pair) {
  const uint shift = 8 * (pair % 4);
  if (pair < 4) return vec2((bytes[0] >> shift) & 63u, (bytes[1] >> shift) & 63u);
  const uint last = bytes[2] >> shift;
  return vec2((last & 15u) | ((bytes[0] >> shift >> 2) & 48u),
              ((last >> 4) & 15u) | ((bytes[1] >> shift >> 2) & 48u));
}

// `head`: scale and minimum as binary16, and those bytes. The chunk's parts are of two sub-blocks,
// which share their bytes of nibbles.
void set_scales(uvec4 head, inout Chunk w) {
  const vec2 d = unpackHalf2x16(head.x);
  const uint bytes[3] = {head.y, head.z, head.w};
  [[unroll]] for (uint part = 0; part < 2; ++part) {
    const vec2 pair = packed_pair(bytes, w.index / 2 * 2 + part);
    w.scale[part] = vec2(d.x * pair.x, -(d.y * pair.y));
  }
}
#endif

Chunk load_chunk(RowRef row, uint chunk) {
  const uint block = chunk / BLOCK_CHUNKS;
  Chunk w;
  w.index = chunk % BLOCK_CHUNKS;
  w.high = uvec4(0);
#if FORMAT == MOE_QFORMAT_Q2_K
  w.low = part_load4(row, 0, 16 * chunk);
  const vec2 d = unpackHalf2x16(part_load1(row, 80, 4 * block));
  // Sub-blocks 8 half + 2 part + place, a byte each.
  const uvec2 bytes = part_load2(row, 64, 8 * (chunk / 2));
  [[unroll]] for (uint part = 0; part < 4; ++part) {
    const uint code = bytes[part / 2] >> (16 * (part % 2) + 8 * (w.index % 2));
    w.scale[part] = vec2(d.x * float(code & 15u), -(d.y * float((code >> 4) & 15u)));
  }
#elif FORMAT == MOE_QFORMAT_Q3_K
  w.low = part_load4(row, 0, 16 * chunk);
  w.high = part_load4(row, 64, 32 * block + 16 * (chunk % 2));
  const float d = part_half(row, 108, 2 * block);
  // Sub-block s: nibbles of byte s % 8, two bits of byte 8 + s % 4 of twelve.
  const uvec2 low = uvec2(part_load1(row, 96, 12 * block), part_load1(row, 96, 12 * block + 4));
  const uint high = part_load1(row, 96, 12 * block + 8);
  [[unroll]] for (uint part = 0; part < 4; ++part) {
    const uint half_at = w.index / 2;
    const uint sub = 2 * part + w.index % 2;  // in its half
    const uint nibble = (low[part / 2] >> (8 * (sub % 4) + 4 * half_at)) & 15u;
    const uint upper = (high >> (8 * (sub % 4) + 4 * half_at + 2 * (part / 2))) & 3u;
    w.scale[part] = vec2(d * (float(nibble | (upper << 4)) - 32.0), 0);
  }
#elif FORMAT == MOE_QFORMAT_Q4_K
  w.low = part_load4(row, 0, 16 * chunk);
  set_scales(part_load4(row, 128, 16 * block), w);
#elif FORMAT == MOE_QFORMAT_Q5_K
  w.low = part_load4(row, 0, 16 * chunk);
  w.high = part_load4(row, 128, 32 * block + 16 * (chunk % 2));
  set_scales(part_load4(row, 160, 16 * block), w);
#else
  w.low = part_load4(row, 0, 16 * chunk);
  w.high = part_load4(row, 128, 32 * (chunk / 4) + 16 * (chunk % 2));
  const float d = part_half(row, 208, 2 * block);
  [[unroll]] for (uint part = 0; part < 2; ++part) {
    const uint code = part_byte(row, 192, 8 * (chunk / 4) + 4 * part + chunk % 4);
    w.scale[part] = vec2(d * (float(code ^ 128u) - 128.0), 0);
  }
#endif
  return w;
}

void part_codes(Chunk w, uint part, out float code[16]) {
  [[unroll]] for (uint i = 0; i < 16; ++i) {
    const uint byte_at = 8 * (i % 4);
#if FORMAT == MOE_QFORMAT_Q2_K
    code[i] = field(w.low[i / 4], byte_at + 2 * part, 2);
#elif FORMAT == MOE_QFORMAT_Q3_K
    const uint two = (w.low[i / 4] >> (byte_at + 2 * part)) & 3u;
    const uint third = (w.high[i / 4] >> (byte_at + 4 * (w.index / 2) + part)) & 1u;
    code[i] = field_less(two | (third << 2), 0, 3, 4.0);
#elif FORMAT == MOE_QFORMAT_Q4_K
    code[i] = field(w.low[i / 4], byte_at + 4 * part, 4);
#elif FORMAT == MOE_QFORMAT_Q5_K
    const uint four = (w.low[i / 4] >> (byte_at + 4 * part)) & 15u;
    const uint fifth = (w.high[i / 4] >> (byte_at + w.index / 2 * 2 + part)) & 1u;
    code[i] = field(four | (fifth << 4), 0, 5);
#else
    const uint four = (w.low[i / 4] >> (byte_at + 4 * part)) & 15u;
    const uint upper = (w.high[i / 4] >> (byte_at + 2 * (w.index % 4 / 2) + 4 * part)) & 3u;
    code[i] = field_less(four | (upper << 4), 0, 6, 32.0);
#endif
  }
}

vec2 part_scale(Chunk w, uint part) { return w.scale[part]; }
