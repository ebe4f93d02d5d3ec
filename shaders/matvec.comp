// The product of a weight matrix with a few rows of inputs, which may be normed first.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/matvec_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"
#include "shaders/input_norm.glsl"
#include "shaders/row_dots.glsl"

layout(constant_id = 10) const uint ADDS = 0;     // to what y holds
layout(constant_id = 11) const uint INDEXED = 0;  // rows of x are chosen by a list

layout(push_constant, scalar) uniform Push { MatvecArgs args; };

void store(uint row, float value) {
  const uint at = gl_WorkGroupID.y * args.y_stride + row;
  args.y.v[at] = ADDS != 0 ? args.y.v[at] + value : value;
}

void find_rows(uint first, out RowRef rows[DOTS]) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    rows[r] = row_ref(uint64_t(args.codes), uint64_t(args.scales), uint64_t(args.biases),
                      min(first + r, args.rows - 1));
  }
}

InputRow find_input() {
  const uint source = INDEXED != 0 ? args.indices.v[gl_WorkGroupID.y] : gl_WorkGroupID.y;
  InputRow from;
  from.x = F32(uint64_t(args.x) + uint64_t(source * args.x_stride) * 4);
  from.factor = args.factor;
  return from;
}

void main() {
  const Team team = team_of_lane();
  const uint step = gl_NumWorkGroups.x * team.count * ROWS;
  uint first = (gl_WorkGroupID.x * team.count + team.index) * ROWS;
  // The weights are on their way while the inputs are normed.
  RowRef rows[DOTS];
  Chunk w[IN_FLIGHT];
  find_rows(first, rows);
  load_steps(rows, team.lane, team, w);
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  InputRow from = find_input();
  keep_normed(from, args.eps);
  while (first < args.rows) {
    float sums[DOTS];
    dot_rows(rows, from, 0, team, w, sums);
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      if (team.lane == r % team.lanes && first + r < args.rows) store(first + r, sums[r]);
    }
    first += step;
    if (first < args.rows) {
      find_rows(first, rows);
      load_steps(rows, team.lane, team, w);
    }
  }
}
