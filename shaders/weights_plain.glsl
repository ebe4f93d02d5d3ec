// F32, F16, BF16: one float after another. A row may have any length; what a chunk has beyond it is
// zero.
#define HAS_SCALE 0
#define HAS_BIAS 0
#define HAS_TABLES 0
#define PART_SHIFT 3
const uint CHUNK = 8;
const uint PARTS = 1;

#if FORMAT == MOE_QFORMAT_F32
const uint PLAIN_BYTES = 4;
#else
const uint PLAIN_BYTES = 2;
#endif

struct Chunk {
  uint word[2 * PLAIN_BYTES];
};

RowRef row_ref(uint64_t codes, uint64_t scales, uint64_t biases, uint row) {
  return RowRef(codes + uint64_t(row) * (COLS * PLAIN_BYTES), 0, 0);
}

// The last chunk of a row, which may not be full.
Chunk load_end(RowRef row, uint chunk) {
  Chunk w;
  [[unroll]] for (uint i = 0; i < 2 * PLAIN_BYTES; ++i) w.word[i] = 0;
  [[unroll]] for (uint i = 0; i < 8; ++i) {
    const uint column = chunk * 8 + i;
    if (column < COLS) {
#if FORMAT == MOE_QFORMAT_F32
      w.word[i] = Words(row.codes).v[column];
#else
      w.word[i / 2] |= uint(Halves(row.codes).v[column]) << (16 * (i % 2));
#endif
    }
  }
  return w;
}

Chunk load_chunk(RowRef row, uint chunk) {
  if (COLS % 8 != 0 && chunk == COLS / 8) return load_end(row, chunk);
  const uint64_t at = row.codes + chunk * (8 * PLAIN_BYTES);
  Chunk w;
  [[unroll]] for (uint i = 0; i < PLAIN_BYTES / 2; ++i) {
    const uvec4 four = load4(at + 16 * i, CODE_ALIGN);
    w.word[4 * i] = four.x;
    w.word[4 * i + 1] = four.y;
    w.word[4 * i + 2] = four.z;
    w.word[4 * i + 3] = four.w;
  }
  return w;
}

void part_codes(Chunk w, uint part, out float code[8]) {
  [[unroll]] for (uint i = 0; i < 8; ++i) {
#if FORMAT == MOE_QFORMAT_F32
    code[i] = uintBitsToFloat(w.word[i]);
#elif FORMAT == MOE_QFORMAT_BF16
    code[i] = uintBitsToFloat(i % 2 == 0 ? w.word[i / 2] << 16 : w.word[i / 2] & 0xFFFF0000u);
#else
    code[i] = unpackHalf2x16(w.word[i / 2])[i % 2];
#endif
  }
}

vec2 part_scale(Chunk w, uint part) { return vec2(1, 0); }
