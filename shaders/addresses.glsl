#ifndef MOEPACK_SHADERS_ADDRESSES_GLSL
#define MOEPACK_SHADERS_ADDRESSES_GLSL

// Row `row` of an array of rows of `count` elements of `bytes_each` bytes at `base`.
uint64_t address_of_row(uint64_t base, uint row, uint count, uint bytes_each) {
  return base + uint64_t(row) * uint64_t(count * bytes_each);
}

#endif
