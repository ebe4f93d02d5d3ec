// The logits of a few rows, and their experts: the product of matvec, routed by the last work group
// that is done with a row (router_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/router_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"
#include "shaders/input_norm.glsl"

layout(push_constant, scalar) uniform Push { RouterArgs args; };

#include "shaders/router_choice.glsl"

void store(uint row, float value) { store_logit(row, value); }

InputRow find_input() {
  InputRow from;
  from.x = F32(uint64_t(args.x) + uint64_t(gl_WorkGroupID.y * args.x_stride) * 4);
  from.factor = args.factor;
  return from;
}

#include "shaders/matvec_rows.glsl"

void main() {
  const uint row = gl_WorkGroupID.y;
  const bool is_live = args.batch.v[row].live != 0;
  multiply_rows();
  choose_last(row, is_live);
}
