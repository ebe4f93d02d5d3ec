// The first half of experts for a few rows: gate and up together, and their activation.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/gate_up_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"
#include "shaders/input_norm.glsl"

layout(constant_id = 10) const uint GATE_UP = 2;    // matrices; 1: the product of the gate alone
layout(constant_id = 11) const uint BY_KIND = 0;  // records differ
#define MATRICES GATE_UP
#include "shaders/row_dots.glsl"
#include "shaders/expert_slots.glsl"

layout(push_constant, scalar) uniform Push { GateUpArgs args; };

float silu(float x) { return x / (1.0 + exp(-x)); }

RowRef gate_row(uint64_t record, uint row) {
  return row_ref(record + args.gate_codes, record + args.gate_scales, record + args.gate_biases,
                 row);
}
RowRef up_row(uint64_t record, uint row) {
  return row_ref(record + args.up_codes, record + args.up_scales, record + args.up_biases, row);
}

void main() {
  const uint place = gl_WorkGroupID.z * args.slots + args.first_slot + gl_WorkGroupID.y;
  const uint expert = args.choices.v[place].expert;
  const uint64_t record =
      BY_KIND != 0
          ? find_record_of(args.records, args.experts, expert, args.kinds, args.kind)
          : find_record(args.records, args.experts, expert);
  if (record == 0) return;
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  InputRow from;
  from.x = F32(uint64_t(args.x) + uint64_t(gl_WorkGroupID.z * args.x_stride) * 4);
  from.factor = args.factor;
  keep_normed(from, args.eps);
  const Team team = team_of_lane();
  for (uint first = (gl_WorkGroupID.x * team.count + team.index) * ROWS; first < args.rows;
       first += gl_NumWorkGroups.x * team.count * ROWS) {
    RowRef rows[DOTS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      rows[r] = gate_row(record, min(first + r, args.rows - 1));
      if (MATRICES == 2) rows[DOTS - ROWS + r] = up_row(record, min(first + r, args.rows - 1));
    }
    float sums[DOTS];
    dot_rows(rows, from, 0, team, sums);
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      if (team.lane == r % team.lanes && first + r < args.rows) {
        const float gate = sums[r];
        args.act.v[place * args.act_stride + first + r] =
            MATRICES == 2 ? silu(gate) * sums[DOTS - ROWS + r] : gate;
      }
    }
  }
}
