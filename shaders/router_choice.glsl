// What the programs of routers share: logits, and the choice by the last work group that is done with
// a row. Whoever includes this has `args` of RouterArgs and thread_index().
#ifndef MOEPACK_SHADERS_ROUTER_CHOICE_GLSL
#define MOEPACK_SHADERS_ROUTER_CHOICE_GLSL

layout(constant_id = 12) const uint EXPERTS = 256;
layout(constant_id = 13) const uint TOP_K = 8;

#include "shaders/last_group.glsl"
#include "shaders/route.glsl"

void store_logit(uint row, float value) {
  SharedF32(args.y).v[gl_WorkGroupID.y * args.y_stride + row] = value;
}

void choose_last(uint row, bool is_live) {
  if (!is_last_group(args.arrived, row, args.groups)) return;
  route_row(RouteArgs(args.batch, args.logits, args.shared_logits, args.choices, args.row_error,
                      EXPERTS, 1, args.options & 1, args.options >> 1 & 1, args.options >> 2),
            row, is_live);
}

#endif
