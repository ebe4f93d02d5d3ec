// Chooses the experts of each row (route_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EXPERTS = 256;
layout(constant_id = 2) const uint TOP_K = 8;

#include "shaders/route.glsl"

layout(push_constant, scalar) uniform Push { RouteArgs args; };

void main() {
  const uint row = gl_WorkGroupID.x;
  route_row(args, row, args.rows.v[row].live != 0);
}
