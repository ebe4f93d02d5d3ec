// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 weights with one scale. The layouts are those of
// formats/weights/ggml_legacy_blocks.cpp. The first half of the weights are the low nibbles.
#define HAS_SCALE 1
#define HAS_TABLES 0
#define PART_SHIFT 4
const uint CHUNK = 32;
const uint PARTS = 2;

#if FORMAT == MOE_QFORMAT_Q4_0
#define HAS_BIAS 0
const uint BLOCK_BYTES = 18;
const uint HIGH_AT = 0;  // fifth bits
const uint CODES_AT = 2;
const float ZERO = 8;
#elif FORMAT == MOE_QFORMAT_Q4_1
#define HAS_BIAS 1
const uint BLOCK_BYTES = 20;
const uint HIGH_AT = 0;
const uint CODES_AT = 4;
const float ZERO = 0;
#elif FORMAT == MOE_QFORMAT_Q5_0
#define HAS_BIAS 0
const uint BLOCK_BYTES = 22;
const uint HIGH_AT = 2;
const uint CODES_AT = 6;
const float ZERO = 16;
#elif FORMAT == MOE_QFORMAT_Q5_1
#define HAS_BIAS 1
const uint BLOCK_BYTES = 24;
const uint HIGH_AT = 4;
const uint CODES_AT = 8;
const float ZERO = 0;
#else
#define HAS_BIAS 0
const uint BLOCK_BYTES = 34;
const uint HIGH_AT = 0;
const uint CODES_AT = 2;
const float ZERO = 128;
#endif

#if FORMAT == MOE_QFORMAT_Q8_0
const uint CODE_WORDS = 8;
#else
const uint CODE_WORDS = 4;
#endif

struct Chunk {
  uint word[CODE_WORDS];
  uint high;
  uint scale;  // the lower 16 bits; of the upper ones, where there is a minimum, that
};

RowRef row_ref(uint64_t codes, uint64_t scales, uint64_t biases, uint row) {
  return RowRef(codes + uint64_t(row) * (COLS / 32 * BLOCK_BYTES), 0, 0);
}

// A block as words, from its first byte or the two before it, whichever is a multiple of four.
const uint LOADED_WORDS = (BLOCK_BYTES + 3) / 4;

Chunk load_chunk(RowRef row, uint chunk) {
  const uint64_t at = row.codes + chunk * BLOCK_BYTES;
  const uint behind = (uint(at) & 2) * 8;  // bits
  Words block = Words(at & ~uint64_t(3));
  uint word[LOADED_WORDS + 1];
  [[unroll]] for (uint i = 0; i < LOADED_WORDS; ++i) word[i] = block.v[i];
  // Blocks of whole words may begin between two.
  word[LOADED_WORDS] = 0;
  if (BLOCK_BYTES % 4 == 0 && CODE_ALIGN < 4 && behind != 0) {
    word[LOADED_WORDS] = block.v[LOADED_WORDS];
  }
  Chunk w;
  w.scale = funnel(word[0], word[1], behind);
  w.high = 0;
#if FORMAT == MOE_QFORMAT_Q5_0 || FORMAT == MOE_QFORMAT_Q5_1
  w.high = funnel(word[HIGH_AT / 4], word[HIGH_AT / 4 + 1], HIGH_AT % 4 * 8 + behind);
#endif
  [[unroll]] for (uint i = 0; i < CODE_WORDS; ++i) {
    w.word[i] = funnel(word[CODES_AT / 4 + i], word[CODES_AT / 4 + i + 1],
                       CODES_AT % 4 * 8 + behind);
  }
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
