// Decoded rows of the embedding: the weights exactly as formats/weights/qcodec.h has them.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/embed_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"

layout(constant_id = 5) const float SCALE = 1.0;
layout(push_constant, scalar) uniform Push { EmbedArgs args; };

void store_part(uint chunk, uint part, Chunk w) {
  float code[PART];
  part_codes(w, part, code);
  const vec2 scale = part_scale(w, part);
  const uint first = part_column(chunk, part);
  [[unroll]] for (uint i = 0; i < PART; ++i) {
    // One operation after another, each rounded.
    precise float value = code[i];
#if HAS_SCALE
    value = value * scale.x;
#if HAS_BIAS
    value = value + scale.y;
#endif
#endif
    if (SCALE != 1.0) value = value * SCALE;
    if (first + i < COLS) {
      args.hidden.v[gl_WorkGroupID.y * args.stride + first + i] = value;
    }
  }
}

void main() {
#if HAS_TABLES
  fill_tables(args.tables, gl_LocalInvocationIndex, gl_WorkGroupSize.x);
  barrier();
#endif
  if (gl_GlobalInvocationID.x == 0) args.row_error.v[gl_WorkGroupID.y] = 0xffffffffu;
  const uint token = args.rows.v[gl_WorkGroupID.y].token - args.first;
  if (token >= args.count) return;
  const RowRef row = row_ref(uint64_t(args.codes), uint64_t(args.scales), uint64_t(args.biases),
                             token);
  for (uint chunk = gl_GlobalInvocationID.x; chunk < CHUNKS;
       chunk += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    const Chunk w = load_chunk(row, chunk);
    [[unroll]] for (uint part = 0; part < PARTS; ++part) store_part(chunk, part, w);
  }
}
