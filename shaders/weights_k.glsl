// Q2_K to Q6_K: 256 weights in sub-blocks whose scales (and minima) are codes themselves. The
// layouts are those of formats/weights/ggml_k_blocks.cpp. A chunk is what 16 bytes of low bits stand
// for: parts of 16 weights that lie 32 or 64 columns apart.
#define HAS_SCALE 1
#define HAS_TABLES 0

#if FORMAT == MOE_QFORMAT_Q2_K
#define HAS_BIAS 1
#define PART_SHIFT 5
const uint CHUNK = 64;
const uint BLOCK_BYTES = 84;
const uint BLOCK_ALIGN = 4;
#elif FORMAT == MOE_QFORMAT_Q3_K
#define HAS_BIAS 0
#define PART_SHIFT 5
const uint CHUNK = 64;
const uint BLOCK_BYTES = 110;
const uint BLOCK_ALIGN = 2;
#elif FORMAT == MOE_QFORMAT_Q4_K
#define HAS_BIAS 1
#define PART_SHIFT 5
const uint CHUNK = 32;
const uint BLOCK_BYTES = 144;
const uint BLOCK_ALIGN = 16;
#elif FORMAT == MOE_QFORMAT_Q5_K
#define HAS_BIAS 1
#define PART_SHIFT 5
const uint CHUNK = 32;
const uint BLOCK_BYTES = 176;
const uint BLOCK_ALIGN = 16;
#else
#define HAS_BIAS 0
#define PART_SHIFT 6
const uint CHUNK = 32;
const uint BLOCK_BYTES = 210;
const uint BLOCK_ALIGN = 2;
#endif
const uint PARTS = CHUNK / 16;
const uint BLOCK_CHUNKS = 256 / CHUNK;

struct Chunk {
  uvec4 low;            // the codes' low bits
  uvec4 high;           // bytes that hold their upper bits
  uint index;           // of the chunk in its block
  vec2 scale[PARTS];    // and bias
};

RowRef row_ref(uint64_t codes, uint64_t scales, uint64_t biases, uint row) {
  return RowRef(codes + uint64_t(row) * (COLS / 256 * BLOCK_BYTES), 0, 0);
}

#if FORMAT == MOE_QFORMAT_Q4_K || FORMAT == MOE_QFORMAT_Q5_K
// Pair `pair` of the twelve bytes that hold eight pairs of six bits: scale, minimum.
vec2 packed_pair(uint bytes[3], uint pair) {
  const uint shift = 8 * (pair % 4);
  if (pair < 4) return vec2((bytes[0] >> shift) & 63u, (bytes[1] >> shift) & 63u);
  const uint last = bytes[2] >> shift;
  return vec2((last & 15u) | ((bytes[0] >> shift >> 2) & 48u),
              ((last >> 4) & 15u) | ((bytes[1] >> shift >> 2) & 48u));
}

// The chunk's parts are of two sub-blocks, which share their bytes of nibbles.
void load_scales(uint64_t block, uint align, inout Chunk w) {
  const vec2 d = unpackHalf2x16(load1(block, align));
  const uvec2 two = load2(block + 4, min(align, 4));
  const uint bytes[3] = {two.x, two.y, load1(block + 12, min(align, 4))};
  [[unroll]] for (uint part = 0; part < 2; ++part) {
    const vec2 pair = packed_pair(bytes, w.index / 2 * 2 + part);
    w.scale[part] = vec2(d.x * pair.x, -(d.y * pair.y));
  }
}
#endif

Chunk load_chunk(RowRef row, uint chunk) {
  const uint64_t at = row.codes + (chunk / BLOCK_CHUNKS) * BLOCK_BYTES;
  const uint align = min(CODE_ALIGN, BLOCK_ALIGN);
  Chunk w;
  w.index = chunk % BLOCK_CHUNKS;
  w.high = uvec4(0);
#if FORMAT == MOE_QFORMAT_Q2_K
  w.low = load4(at + 16 + 16 * w.index, align);
  const vec2 d = unpackHalf2x16(load1(at + 80, align));
  // Sub-blocks 8 half + 2 part + place, a byte each.
  const uvec2 bytes = load2(at + 8 * (w.index / 2), min(align, 8));
  [[unroll]] for (uint part = 0; part < 4; ++part) {
    const uint code = bytes[part / 2] >> (16 * (part % 2) + 8 * (w.index % 2));
    w.scale[part] = vec2(d.x * float(code & 15u), -(d.y * float((code >> 4) & 15u)));
  }
#elif FORMAT == MOE_QFORMAT_Q3_K
  w.low = load4(at + 32 + 16 * w.index, align);
  w.high = load4(at + 16 * (w.index % 2), align);
  const float d = load_half(at + 108);
  // Sub-block s: nibbles of byte 96 + s % 8, two bits of byte 104 + s % 4.
  const uvec2 low = load2(at + 96, align);
  const uint high = load1(at + 104, align);
  [[unroll]] for (uint part = 0; part < 4; ++part) {
    const uint half_at = w.index / 2;
    const uint sub = 2 * part + w.index % 2;  // in its half
    const uint nibble = (low[part / 2] >> (8 * (sub % 4) + 4 * half_at)) & 15u;
    const uint upper = (high >> (8 * (sub % 4) + 4 * half_at + 2 * (part / 2))) & 3u;
    w.scale[part] = vec2(d * (float(nibble | (upper << 4)) - 32.0), 0);
  }
#elif FORMAT == MOE_QFORMAT_Q4_K
  w.low = load4(at + 16 + 16 * w.index, align);
  load_scales(at, align, w);
#elif FORMAT == MOE_QFORMAT_Q5_K
  w.low = load4(at + 48 + 16 * w.index, align);
  w.high = load4(at + 16 + 16 * (w.index % 2), align);
  load_scales(at, align, w);
#else
  w.low = load4(at + 16 * w.index, align);
  w.high = load4(at + 128 + 32 * (w.index / 4) + 16 * (w.index % 2), align);
  const float d = load_half(at + 208);
  [[unroll]] for (uint part = 0; part < 2; ++part) {
    const uint code = load_byte(at + 192 + 8 * (w.index / 4) + 4 * part + w.index % 4);
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
