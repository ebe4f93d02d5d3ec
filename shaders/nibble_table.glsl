// What the nibbles of a format stand for, in shared memory.
#ifndef MOEPACK_SHADERS_NIBBLE_TABLE_GLSL
#define MOEPACK_SHADERS_NIBBLE_TABLE_GLSL

shared float nibble_values[16];

void fill_nibbles(float values[16], uint thread) {
  if (thread < 16) nibble_values[thread] = values[thread];
}
float nibble_value(uint word, uint place) { return nibble_values[(word >> place) & 15u]; }

#endif
