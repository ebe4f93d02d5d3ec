// Q2 to Q8: codes as a little-endian bit stream, scales and biases in arrays of their own. 32 codes
// fill whole words.
#define HAS_SCALE 1
#define HAS_BIAS 1
#define HAS_TABLES 0
#define PART_SHIFT 4
#if FORMAT == MOE_QFORMAT_Q2 && defined(WIDE_CHUNKS)
// Whoever includes this needs groups of at least 64.
const uint CHUNK = 64;
#else
const uint CHUNK = 32;
#endif
const uint PARTS = CHUNK / 16;

#if FORMAT == MOE_QFORMAT_Q2
const uint BITS = 2;
#elif FORMAT == MOE_QFORMAT_Q3
const uint BITS = 3;
#elif FORMAT == MOE_QFORMAT_Q4
const uint BITS = 4;
#elif FORMAT == MOE_QFORMAT_Q5
const uint BITS = 5;
#elif FORMAT == MOE_QFORMAT_Q6
const uint BITS = 6;
#else
const uint BITS = 8;
#endif

struct Chunk {
  uint word[CHUNK / 32 * BITS];
  uint scale;  // 16 bits each
  uint bias;
};

RowRef row_ref(uint64_t codes, uint64_t scales, uint64_t biases, uint row) {
  const uint64_t groups = uint64_t(row) * (COLS / GROUP * 2);
  return RowRef(codes + uint64_t(row) * (COLS / 8 * BITS), scales + groups, biases + groups);
}

Chunk load_chunk(RowRef row, uint chunk) {
  const uint chunk_bytes = CHUNK / 8 * BITS;
  const uint chunk_align = chunk_bytes % 16 == 0 ? 16 : chunk_bytes % 8 == 0 ? 8 : 4;
  const uint align = min(CODE_ALIGN, chunk_align);
  const uint64_t at = row.codes + chunk * chunk_bytes;
  Chunk w;
#if (FORMAT != MOE_QFORMAT_Q2 || defined(WIDE_CHUNKS)) && FORMAT != MOE_QFORMAT_Q3
  const uvec4 four = load4(at, align);
  [[unroll]] for (uint i = 0; i < 4; ++i) w.word[i] = four[i];
#endif
#if FORMAT == MOE_QFORMAT_Q8
  const uvec4 last = load4(at + 16, align);
  [[unroll]] for (uint i = 0; i < 4; ++i) w.word[4 + i] = last[i];
#elif FORMAT != MOE_QFORMAT_Q4 && FORMAT != MOE_QFORMAT_Q5 && \
    !(FORMAT == MOE_QFORMAT_Q2 && defined(WIDE_CHUNKS))
  const uvec2 two = load2(at + 4 * (BITS / 4 * 4), align);
  w.word[BITS / 4 * 4] = two.x;
  w.word[BITS / 4 * 4 + 1] = two.y;
#endif
#if FORMAT == MOE_QFORMAT_Q3 || FORMAT == MOE_QFORMAT_Q5
  w.word[BITS - 1] = load1(at + 4 * (BITS - 1), align);
#endif
  const uint group = chunk * CHUNK / GROUP;
  w.scale = uint(Halves(row.scales).v[group]);
  w.bias = uint(Halves(row.biases).v[group]);
  return w;
}

void part_codes(Chunk w, uint part, out float code[16]) {
  [[unroll]] for (uint i = 0; i < 16; ++i) {
    const uint bit = (16 * part + i) * BITS;
    const uint low = w.word[bit / 32];
    if (bit % 32 + BITS <= 32) {
      code[i] = field(low, bit % 32, BITS);
    } else {  // across two words
      code[i] = field(funnel(low, w.word[bit / 32 + 1], bit % 32), 0, BITS);
    }
  }
}

#if FORMAT == MOE_QFORMAT_Q2
// Codes as they stand in the upper bits of a float's fraction: an operation less for each. Three
// places of a word are near enough to the top; their floats are 4, 16 and 64 more than the code.
#define HAS_RAISED 1
float raise_of(uint i) { return i % 3 == 0 ? 4 : i % 3 == 1 ? 64 : 16; }

void raised_codes(Chunk w, uint part, out float code[16]) {
  [[unroll]] for (uint i = 0; i < 16; ++i) {
    const uint first = (i + 2) / 3 * 3;  // of its three, the one that goes to bits 21 and 22
    const uint word = 2 * first > 21 ? w.word[part] >> (2 * first - 21)
                                     : w.word[part] << (21 - 2 * first);
    const uint place = 21 - 2 * (first - i);
    code[i] = uintBitsToFloat((word & (3u << place)) | ((150u - place) << 23));
  }
}
#endif

float widen_scale(uint bits) {
  return SCALE_F16 != 0 ? unpackHalf2x16(bits).x : uintBitsToFloat(bits << 16);
}
vec2 part_scale(Chunk w, uint part) { return vec2(widen_scale(w.scale), widen_scale(w.bias)); }
