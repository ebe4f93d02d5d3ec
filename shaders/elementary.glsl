// Elementary functions of float32 that are as exact on every device. GLSL allows exp an error that
// grows with its argument, and sin and cos of large arguments any error at all; models were trained
// with neither.
#ifndef MOEPACK_SHADERS_ELEMENTARY_GLSL
#define MOEPACK_SHADERS_ELEMENTARY_GLSL

// On the bits, because compilers may assume that no value is infinite or NaN.
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u; }

// e^x within two units in the last place where the result is a normal number. Cody and Waite's
// reduction by ln 2 in two parts, and the minimax polynomial of Cephes' expf.
float exact_exp(float x) {
  if (!(abs(x) < 87.0)) return exp(x);
  const float n = floor(x * 1.44269504 + 0.5);
  precise float r = x - n * 0.693359375;
  r = r - n * -2.12194440e-4;
  precise float y = 1.9875691500e-4 * r + 1.3981999507e-3;
  y = y * r + 8.3334519073e-3;
  y = y * r + 4.1665795894e-2;
  y = y * r + 1.6666665459e-1;
  y = y * r + 5.0000001201e-1;
  y = (y * (r * r) + r) + 1.0;
  return y * uintBitsToFloat(uint(int(n) + 127) << 23);
}

float sigmoid(float x) { return 1.0 / (1.0 + exact_exp(-x)); }
float silu(float x) { return x * sigmoid(x); }

// The hyperbolic tangent within a few units in the last place: the minimax polynomial of Cephes' tanhf
// where e^2x - 1 would cancel.
float exact_tanh(float x) {
  if (abs(x) >= 0.625) {
    // Beyond 40 it is 1, and e^2x would overflow; NaN stays.
    const float magnitude = abs(x) > 40.0 ? 40.0 : abs(x);
    precise float y = 1.0 - 2.0 / (exact_exp(2.0 * magnitude) + 1.0);
    return x < 0.0 ? -y : y;
  }
  precise float z = x * x;
  precise float y = -5.70498872745e-3 * z + 2.06390887954e-2;
  y = y * z - 5.37397155531e-2;
  y = y * z + 1.33314422036e-1;
  y = y * z - 3.33332819422e-1;
  y = y * z * x + x;
  return y;
}

// log(1 + y) for 0 <= y <= 1, within a few units in the last place: twice the inverse hyperbolic
// tangent of y / (2 + y), by its series.
float log1p_unit(float y) {
  precise float s = y / (2.0 + y);
  precise float z = s * s;
  precise float sum = 1.0 / 17.0;
  sum = sum * z + 1.0 / 15.0;
  sum = sum * z + 1.0 / 13.0;
  sum = sum * z + 1.0 / 11.0;
  sum = sum * z + 1.0 / 9.0;
  sum = sum * z + 1.0 / 7.0;
  sum = sum * z + 1.0 / 5.0;
  sum = sum * z + 1.0 / 3.0;
  return 2.0 * (s + s * z * sum);
}

// log(1 + exp(x)); x itself above 20, as PyTorch computes it.
float softplus(float x) {
  if (x > 20.0) return x;
  const float tail = log1p_unit(exact_exp(-abs(x)));
  return x > 0.0 ? x + tail : tail;
}

// (cos, sin) of |angle| <= pi / 4, by the minimax polynomials of Cephes' sinf and cosf.
vec2 small_cos_sin(float angle) {
  precise float z = angle * angle;
  precise float s = -1.9515295891e-4 * z + 8.3321608736e-3;
  s = s * z - 1.6666654611e-1;
  s = (s * z) * angle + angle;
  precise float c = 2.443315711809948e-5 * z - 1.388731625493765e-3;
  c = c * z + 4.166664568298827e-2;
  c = (c * z * z - 0.5 * z) + 1.0;
  return vec2(c, s);
}

// (cos, sin) of an angle >= 0 and < 2^32, within 2^-22 absolute. The angle is a whole number m of
// units 2^e; the fraction of a turn that it leaves is that of m * 2^e / (2 pi), of which only the
// bits of 1 / (2 pi) behind the e-th matter (Payne and Hanek's reduction, in integers).
vec2 cos_sin(float angle) {
  if (angle < 0.75) return small_cos_sin(angle);
  const uint kTurns[4] = uint[4](0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u);
  const uint bits = floatBitsToUint(angle);
  const uint m = (bits & 0x7fffffu) | 0x800000u;
  const int e = int(bits >> 23) - 150;
  if (e >= 9) return vec2(angle - angle + uintBitsToFloat(0x7fc00000u));
  uint high, low;
  if (e < 0) {
    high = kTurns[0] >> -e;
    low = (kTurns[0] << (32 + e)) | (kTurns[1] >> -e);
  } else if (e == 0) {
    high = kTurns[0];
    low = kTurns[1];
  } else {
    high = (kTurns[0] << e) | (kTurns[1] >> (32 - e));
    low = (kTurns[1] << e) | (kTurns[2] >> (32 - e));
  }
  uint carry, dropped;
  umulExtended(m, low, carry, dropped);
  const uint turn = m * high + carry;  // in units of 2^-32
  const uint quadrant = (turn + 0x20000000u) >> 30;
  const vec2 v = small_cos_sin(float(int(turn - (quadrant << 30))) * 1.46291807926716e-9);
  if (quadrant == 0u) return v;
  if (quadrant == 1u) return vec2(-v.y, v.x);
  if (quadrant == 2u) return -v;
  return vec2(v.y, -v.x);
}

#endif
