// Rows whose blocks lie apart by their parts (runtime/vulkan/device_rows.h): first one part of all
// blocks, then the next, so that lanes with consecutive chunks read consecutive vectors.
//   before   bytes of a block that lie in earlier parts
//   at       bytes behind the part's first: a multiple of what is loaded
// Whoever includes this has BLOCKS, the blocks of a row, and BLOCK_BYTES.
#ifndef MOEPACK_SHADERS_ROW_PARTS_GLSL
#define MOEPACK_SHADERS_ROW_PARTS_GLSL

RowRef row_ref(uint64_t codes, uint64_t scales, uint64_t biases, uint row) {
  return RowRef(codes + uint64_t(row) * (BLOCKS * BLOCK_BYTES), 0, 0);
}

// What addresses of a part are multiples of.
uint part_align(uint before, uint loaded) {
  const uint bits = (before * BLOCKS) | loaded | CODE_ALIGN;
  return bits & (~bits + 1);
}
uint64_t part_address(RowRef row, uint before, uint at) { return row.codes + (before * BLOCKS + at); }

uvec4 part_load4(RowRef row, uint before, uint at) {
  return load4(part_address(row, before, at), part_align(before, 16));
}
uvec2 part_load2(RowRef row, uint before, uint at) {
  return load2(part_address(row, before, at), part_align(before, 8));
}
uint part_load1(RowRef row, uint before, uint at) {
  return load1(part_address(row, before, at), part_align(before, 4));
}
uint part_short(RowRef row, uint before, uint at) {
  return uint(Halves(part_address(row, before, at)).v[0]);
}
float part_half(RowRef row, uint before, uint at) { return load_half(part_address(row, before, at)); }
uint part_byte(RowRef row, uint before, uint at) { return load_byte(part_address(row, before, at)); }

#endif
