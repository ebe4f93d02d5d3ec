// The product of a weight matrix with a few rows of inputs, which may be normed first.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WAITS_BY_COUNTS
#include "shaders/common.glsl"
#include "shaders/matvec_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"
#include "shaders/input_norm.glsl"

layout(constant_id = 10) const uint ADDS = 0;     // to what y holds
layout(constant_id = 11) const uint INDEXED = 0;  // rows of x are chosen by a list

#define STAGE_ARGS MatvecArgs
#include "shaders/stage_order.glsl"

void store(uint row, float value) {
  const uint at = gl_WorkGroupID.y * args.y_stride + row;
  args.y.v[at] = ADDS != 0 ? args.added.v[at] + value : value;
}

InputRow find_input() {
  await_stage(1);
  const uint source = INDEXED != 0 ? args.indices.v[gl_WorkGroupID.y] : gl_WorkGroupID.y;
  InputRow from;
  from.x = HandedF32(uint64_t(args.x) + uint64_t(source * args.x_stride) * 4);
  from.factor = args.factor;
  return from;
}

#include "shaders/matvec_rows.glsl"

void run_stage() { multiply_rows(); }
