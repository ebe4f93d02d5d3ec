// What the programs of routers share: logits, and the choice by the last work group that is done with
// a row. Whoever includes this has `args` of RouterArgs and thread_index().
#ifndef MOEPACK_SHADERS_ROUTER_CHOICE_GLSL
#define MOEPACK_SHADERS_ROUTER_CHOICE_GLSL

layout(constant_id = 12) const uint EXPERTS = 256;
layout(constant_id = 13) const uint TOP_K = 8;
layout(constant_id = 14) const uint ROUTER_SIGMOIDS = 0;
layout(constant_id = 15) const uint ROUTER_BIAS = 0;
layout(constant_id = 16) const uint ROUTER_GROUPS = 1;
layout(constant_id = 17) const uint ROUTER_KEPT = 1;
layout(constant_id = 18) const float ROUTER_SCALE = 1.0;
layout(constant_id = 19) const uint SHARED_GATE = 1;
layout(constant_id = 20) const uint ROUTER_EXPERT_SCALES = 0;
layout(constant_id = 21) const uint ROUTER_LANES = 8;  // the least that a subgroup has
layout(constant_id = 22) const float EPSILON = 1e-6;

#include "shaders/last_group.glsl"
#include "shaders/route.glsl"

void store_logit(uint row, float value) {
  const uint stride = (args.options & 4) != 0 ? 1 : EXPERTS;
  args.y.v[gl_WorkGroupID.y * stride + row] = value;
}

void choose_last(uint row, bool is_live) {
  if (!is_last_group(args.arrived, row, args.options >> MOE_ROUTER_GROUPS_AT)) return;
  const uint layer = (args.options & ((1u << MOE_ROUTER_GROUPS_AT) - 1)) >> 3;
  route_row(RouteArgs(args.batch, args.logits, args.shared_logits, args.choices, args.row_error,
                      args.bias, EXPERTS, 1, args.options & 1, args.options >> 1 & 1,
                      layer),
            row, is_live);
}

#endif
