// The logits of a few rows, and their experts: the product of matvec, routed by the last work group
// that is done with a row (router_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/router_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"
#include "shaders/input_norm.glsl"
#include "shaders/row_dots.glsl"

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

void multiply(uint batch_row) {
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  InputRow from;
  from.x = F32(uint64_t(args.x) + uint64_t(batch_row * args.x_stride) * 4);
  from.factor = args.factor;
  keep_normed(from, args.eps);
  const Team team = team_of_lane();
  for (uint first = (gl_WorkGroupID.x * team.count + team.index) * ROWS; first < args.rows;
       first += gl_NumWorkGroups.x * team.count * ROWS) {
    RowRef rows[DOTS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      rows[r] = row_ref(uint64_t(args.codes), uint64_t(args.scales), uint64_t(args.biases),
                        min(first + r, args.rows - 1));
    }
    float sums[DOTS];
    dot_rows(rows, from, 0, team, sums);
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      if (team.lane == r % team.lanes && first + r < args.rows) {
        SharedF32(args.y).v[batch_row * args.y_stride + first + r] = sums[r];
      }
    }
  }
}

void main() {
  const uint batch_row = gl_WorkGroupID.y;
  multiply(batch_row);
  if (is_last(batch_row)) route_row(route_args(), batch_row);
}
