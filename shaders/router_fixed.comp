// router with inputs in fixed point.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/router_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#define WIDE_CHUNKS
#include "shaders/weights.glsl"
#include "shaders/fixed_turns.glsl"

#define STAGE_ARGS RouterArgs
#include "shaders/stage_order.glsl"

#include "shaders/router_choice.glsl"

float keep_inputs() {
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  const uint64_t x = uint64_t(args.x) + uint64_t(gl_WorkGroupID.y * COLS) * 4;
  await_handed(HandedF32x4(x), COLS / 4);
  return keep_row(HandedF32(x), args.factor, EPSILON);
}

void find_rows(uint first, out RowRef rows[DOTS]) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    rows[r] = row_ref(uint64_t(args.codes), uint64_t(args.scales), uint64_t(args.biases),
                      min(first + r, args.rows - 1));
  }
}

void begin_rows(uint first, uint lane) {}

void store_rows(uint first, float sums[DOTS], uint lane) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (lane == r % team_lanes() && first + r < args.rows) store_logit(first + r, sums[r]);
  }
}

void run_stage() {
  const uint row = gl_WorkGroupID.y;
  const bool is_live = args.batch.v[row].live != 0;
  take_turns(gl_WorkGroupID.x * rows_at_once(), args.rows, gl_NumWorkGroups.x * rows_at_once());
  choose_last(row, is_live);
}
