// Decoding of two formats until shaders/weights.glsl is there.
#include "formats/weights/qformat_defs.h"

layout(constant_id = 1) const uint kGroupSize = 64;
layout(constant_id = 2) const bool kHalfScales = false;

struct Matrix {
  Words codes;
  Halves scales;
  Halves biases;
};

float bf16(uint16_t bits) { return uintBitsToFloat(uint(bits) << 16); }

float scale_value(uint16_t bits) { return kHalfScales ? unpackHalf2x16(bits).x : bf16(bits); }

void decode_run(Matrix matrix, uint row, uint col, uint cols, out float w[kRun]) {
#if FORMAT == MOE_QFORMAT_Q4
  if (col < cols) {
    const uint group = row * (cols / kGroupSize) + col / kGroupSize;
    const float scale = scale_value(matrix.scales.v[group]);
    const float bias = scale_value(matrix.biases.v[group]);
    const uint word = row * (cols / 8) + col / 8;
    [[unroll]] for (uint i = 0; i < kRun; ++i) {
      w[i] = float(bitfieldExtract(matrix.codes.v[word + i / 8], int(i % 8) * 4, 4)) * scale + bias;
    }
  } else {
    [[unroll]] for (uint i = 0; i < kRun; ++i) w[i] = 0;
  }
#elif FORMAT == MOE_QFORMAT_BF16
  [[unroll]] for (uint i = 0; i < kRun; ++i) {
    w[i] = col + i < cols ? bf16(Halves(matrix.codes).v[row * cols + col + i]) : 0.0;
  }
#endif
}
