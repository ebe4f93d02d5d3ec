// The logits of a few rows, and their experts: the product of matvec, routed by the last work group
// that is done with a row (router_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/router_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"
#include "shaders/input_norm.glsl"

layout(constant_id = 12) const uint EXPERTS = 256;
layout(constant_id = 13) const uint TOP_K = 8;

#include "shaders/route.glsl"

layout(push_constant, scalar) uniform Push { RouterArgs args; };

shared uint arrived_before;

// Whether this work group is the last of the row's; what the others wrote is then seen.
bool is_last(uint row) {
  memoryBarrierBuffer();
  barrier();
  if (thread_index() == 0) arrived_before = atomicAdd(args.arrived.v[row], 1);
  barrier();
  if (arrived_before + 1 != args.groups) return false;
  memoryBarrierBuffer();
  if (thread_index() == 0) args.arrived.v[row] = 0;
  return true;
}

RouteArgs route_args() {
  return RouteArgs(args.batch, args.logits, args.shared_logits, args.choices, args.row_error,
                   EXPERTS, 1, args.options & 1, args.options >> 1 & 1, args.options >> 2);
}

void store(uint row, float value) {
  SharedF32(args.y).v[gl_WorkGroupID.y * args.y_stride + row] = value;
}

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
  if (is_last(row)) route_row(route_args(), row, is_live);
}
