// Arithmetic on device addresses without 64-bit integers, which a device may lack.
#ifndef MOEPACK_SHADERS_ADDRESSES_GLSL
#define MOEPACK_SHADERS_ADDRESSES_GLSL

#extension GL_EXT_buffer_reference_uvec2 : require

// The address `count` * `bytes_each` bytes behind `base`; count * bytes_each may exceed 32 bits.
uvec2 address_after(uvec2 base, uint count, uint bytes_each) {
  uint high, low, carry;
  umulExtended(count, bytes_each, high, low);
  const uint sum = uaddCarry(base.x, low, carry);
  return uvec2(sum, base.y + high + carry);
}

#endif
