// Keys and values of a slice in a layer: [position, 2, kv_heads, head_dim], at each position the keys
// of all heads and then their values, so that a cache grows at its end. The address is 16-byte
// aligned, head_dim a multiple of 4; of 8 for kv_load8.
#ifndef MOEPACK_SHADERS_KV_GLSL
#define MOEPACK_SHADERS_KV_GLSL

layout(constant_id = 1) const uint HEAD_DIM = 128;
// As runtime/model/kv_encoding.h numbers them: 0 float32, 1 bfloat16, 3 float16.
layout(constant_id = 2) const uint KV_ENCODING = 1;

// Where values of a head begin; of keys with is_value 0.
uint kv_index(uint position, uint is_value, uint head, uint kv_heads) {
  return ((position * 2 + is_value) * kv_heads + head) * HEAD_DIM;
}

// To nearest, halves to even; NaN stays NaN.
uint bf16_code(float x) {
  const uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// The same; what rounds beyond 65504 becomes infinite.
uint f16_code(float x) {
  const uint bits = floatBitsToUint(x);
  const uint sign = (bits >> 16) & 0x8000u;
  const uint magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude >= 0x38800000u) {
    return sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
  }
  // A subnormal's code counts units of 2^-24.
  if (magnitude < 0x33000000u) return sign;
  const uint shift = 126u - (magnitude >> 23);
  const uint whole = (magnitude & 0x7fffffu) | 0x800000u;
  const uint code = whole >> shift;
  const uint rest = whole & ((1u << shift) - 1u);
  const uint half_unit = 1u << (shift - 1u);
  return sign | (code + (rest > half_unit || (rest == half_unit && (code & 1u) != 0u) ? 1u : 0u));
}

void kv_store(Words cache, uint index, float x) {
  if (KV_ENCODING == 0) {
    cache.v[index] = floatBitsToUint(x);
  } else {
    Halves(cache).v[index] = uint16_t(KV_ENCODING == 1 ? bf16_code(x) : f16_code(x));
  }
}

// Two codes in a word.
vec2 kv_decode(uint word) {
  if (KV_ENCODING == 1) return uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u));
  return unpackHalf2x16(word);
}

// Four values from `index` on, a multiple of 4.
vec4 kv_load4(Words cache, uint index) {
  if (KV_ENCODING == 0) return uintBitsToFloat(Words4(cache).v[index / 4]);
  const uvec2 words = Words2(cache).v[index / 4];
  return vec4(kv_decode(words.x), kv_decode(words.y));
}

// Eight values from `index` on, a multiple of 8.
void kv_load8(Words cache, uint index, out vec4 low, out vec4 high) {
  if (KV_ENCODING == 0) {
    low = uintBitsToFloat(Words4(cache).v[index / 4]);
    high = uintBitsToFloat(Words4(cache).v[index / 4 + 1]);
  } else {
    const uvec4 words = Words4(cache).v[index / 8];
    low = vec4(kv_decode(words.x), kv_decode(words.y));
    high = vec4(kv_decode(words.z), kv_decode(words.w));
  }
}

#endif
