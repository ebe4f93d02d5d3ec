// RMSNorm of a V head's result and its gate, as both ways of GatedDeltaNet form it: eight lanes sum
// the squares, lane p those of values p, p + 8, …
#ifndef MOEPACK_SHADERS_DELTA_NORM_GLSL
#define MOEPACK_SHADERS_DELTA_NORM_GLSL

struct DeltaNorm {
  float scale;
  bool is_wide;  // scale belongs to the values times kShrink
};

float query_scale() { return 1.0 / sqrt(float(KEY_DIM)); }

float add_square(float sum, float x) {
  precise float y = fma(x, x, sum);
  return y;
}

DeltaNorm norm_of(float sum, float eps) {
  precise float scale = 1.0 / sqrt(sum / float(VALUE_DIM) + eps);
  return DeltaNorm(scale, !is_finite(sum));
}

float wide_scale(float shrunk_sum) {
  precise float scale = 1.0 / sqrt(shrunk_sum / float(VALUE_DIM));
  return scale;
}

float gated(DeltaNorm norm, float x, float factor, float z) {
  precise float y = (norm.is_wide ? x * kShrink : x) * norm.scale * factor;
  precise float result = silu(z) * y;
  return result;
}

#endif
