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
layout(constant_id = 12) const uint ACTIVATION = 0;
layout(constant_id = 13) const float ACTIVATION_LIMIT = 0;
layout(constant_id = 14) const uint ADDS_BIAS = 0;  // of gate and up
#define MATRICES GATE_UP
#include "shaders/row_turns.glsl"
#include "shaders/expert_slots.glsl"
#include "shaders/expert_activation.h"

layout(push_constant, scalar) uniform Push { GateUpArgs args; };

uint place_of_group() {
  return gl_WorkGroupID.z * args.slots + args.first_slot + gl_WorkGroupID.y;
}

uint expert;      // of the group
uint64_t record;  // its

uint64_t find_expert() {
  return BY_KIND != 0 ? find_record_of(args.records, args.experts, expert, args.kinds, args.kind)
                      : find_record(args.records, args.experts, expert);
}

void find_rows(uint first, out RowRef rows[DOTS]) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    const uint row = min(first + r, args.rows - 1);
    rows[r] = row_ref(record + args.gate_codes, record + args.gate_scales,
                      record + args.gate_biases, row);
    if (MATRICES == 2) {
      rows[DOTS - ROWS + r] =
          row_ref(record + args.up_codes, record + args.up_scales, record + args.up_biases, row);
    }
  }
}

void store_rows(uint first, float sums[DOTS], Team team) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (team.lane == r % team.lanes && first + r < args.rows) {
      float value = sums[r];
      float other = sums[DOTS - ROWS + r];
      if (ADDS_BIAS != 0) {
        const uint at = expert * 2 * args.rows + first + r;
        value += args.bias.v[at];
        if (MATRICES == 2) other += args.bias.v[at + args.rows];
      }
      args.act.v[place_of_group() * args.act_stride + first + r] =
          MATRICES == 2 ? activate(value, other) : value;
    }
  }
}

void main() {
  InputRow from;
  from.x = HandedF32(uint64_t(args.x) + uint64_t(gl_WorkGroupID.z * args.x_stride) * 4);
  from.factor = args.factor;
  // The inputs do not wait for the choice, nor the weights for the norm.
  expert = args.choices.v[place_of_group()].expert;
  const float squares = begin_normed(from);
  record = find_expert();
  if (record == 0) return;
  const Team team = team_of_lane();
  Chunk w[IN_FLIGHT];
  load_turn(first_turn(team), 0, team, w);
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  end_normed(from, squares, args.eps);
  take_turns(args.rows, from, team, w);
}
