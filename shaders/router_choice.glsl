// What the programs of routers share: logits, and the choice by the last work group that is done with
// a row. Whoever includes this has `args` of RouterArgs and thread_index().
#ifndef MOEPACK_SHADERS_ROUTER_CHOICE_GLSL
#define MOEPACK_SHADERS_ROUTER_CHOICE_GLSL

layout(constant_id = 12) const uint EXPERTS = 256;
layout(constant_id = 13) const uint TOP_K = 8;

#include "shaders/route.glsl"

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

void store_logit(uint row, float value) {
  SharedF32(args.y).v[gl_WorkGroupID.y * args.y_stride + row] = value;
}

void choose_last(uint row, bool is_live) {
  if (!is_last(row)) return;
  route_row(RouteArgs(args.batch, args.logits, args.shared_logits, args.choices, args.row_error,
                      EXPERTS, 1, args.options & 1, args.options >> 1 & 1, args.options >> 2),
            row, is_live);
}

#endif
