// What the nibbles of a format stand for, in shared memory.
#ifndef MOEPACK_SHADERS_NIBBLE_TABLE_GLSL
#define MOEPACK_SHADERS_NIBBLE_TABLE_GLSL

shared float nibble_values[16];

void fill_nibbles(float values[16], uint thread) {
  if (thread < 16) nibble_values[thread] = values[thread];
}
// The values of the low nibbles of four bytes, which are whole numbers, as bytes.
uint nibble_bytes(uint word) {
  uint bytes = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    bytes |= (uint(int(nibble_values[(word >> (8 * i)) & 15u])) & 255u) << (8 * i);
  }
  return bytes;
}
float nibble_value(uint word, uint place) { return nibble_values[(word >> place) & 15u]; }

#endif
