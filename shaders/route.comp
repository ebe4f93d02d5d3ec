// Chooses the experts of each row (route_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EXPERTS = 256;
layout(constant_id = 2) const uint TOP_K = 8;
layout(constant_id = 3) const uint ROUTER_SIGMOIDS = 0;
layout(constant_id = 4) const uint ROUTER_BIAS = 0;
layout(constant_id = 5) const uint ROUTER_GROUPS = 1;
layout(constant_id = 6) const uint ROUTER_KEPT = 1;
layout(constant_id = 7) const float ROUTER_SCALE = 1.0;
layout(constant_id = 8) const uint SHARED_GATE = 1;
layout(constant_id = 9) const uint ROUTER_EXPERT_SCALES = 0;
layout(constant_id = 10) const uint ROUTER_LANES = 8;

#include "shaders/route.glsl"

layout(push_constant, scalar) uniform Push { RouteArgs args; };

void main() {
  const uint row = gl_WorkGroupID.x;
  route_row(args, row, args.rows.v[row].live != 0);
}
