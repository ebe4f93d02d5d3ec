// The logits of a few rows, and their experts: the product of matvec, routed by the last work group
// that is done with a row (router_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#define WAITS_BY_COUNTS
#include "shaders/common.glsl"
#include "shaders/router_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"
#include "shaders/input_norm.glsl"
#include "shaders/row_dots.glsl"

#define STAGE_ARGS RouterArgs
#include "shaders/stage_order.glsl"

#include "shaders/router_choice.glsl"

InputRow find_input() {
  InputRow from;
  from.x = HandedF32(uint64_t(args.x) + uint64_t(gl_WorkGroupID.y * COLS) * 4);
  from.factor = args.factor;
  return from;
}

void load_rows(uint first, uint begin, Team team, out Chunk w[IN_FLIGHT]) {
  RowRef rows[DOTS];
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    rows[r] = row_ref(uint64_t(args.codes), uint64_t(args.scales), uint64_t(args.biases),
                      min(first + r, args.rows - 1));
  }
  load_steps(rows, begin + team.lane, team, w);
}

void keep_inputs(inout InputRow from) {
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  await_stage(1);
  keep_normed(from, EPSILON);
}

void store_rows(uint first, float sums[DOTS], Team team) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (team.lane == r % team.lanes && first + r < args.rows) store_logit(first + r, sums[r]);
  }
}

// All rows that are this work group's. As in fixed_turns.glsl there is one copy of the code.
void multiply_rows() {
  const Team team = team_of_lane();
  const uint of_team = team.index * ROWS;
  uint first = gl_WorkGroupID.x * team.count * ROWS;
  uint begin = 0;  // of the step's chunks
  bool is_kept = false;
  InputRow from = find_input();
  float sums[DOTS];
  [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] = 0;
  [[dont_unroll]] do {
    Chunk w[IN_FLIGHT];
    load_rows(first + of_team, begin, team, w);
    if (!is_kept) keep_inputs(from);
    is_kept = true;
    add_steps(w, from, 0, begin + team.lane, team, sums);
    begin += STEPS * team.lanes;
    if (begin >= CHUNKS) {
      sum_lanes(from, team, sums);
      store_rows(first + of_team, sums, team);
      [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] = 0;
      begin = 0;
      first += gl_NumWorkGroups.x * team.count * ROWS;
    }
  } while (first < args.rows);
}

void run_stage() {
  const uint row = gl_WorkGroupID.y;
  const bool is_live = args.batch.v[row].live != 0;
  multiply_rows();
  choose_last(row, is_live);
}
