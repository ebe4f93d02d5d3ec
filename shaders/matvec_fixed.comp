// Products of weight matrices with a few rows of inputs in fixed point, which may be normed first.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/matvec_fixed_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#define WIDE_CHUNKS
#include "shaders/weights.glsl"
#include "shaders/fixed_turns.glsl"

layout(constant_id = 10) const uint ADDS = 0;      // to what y holds
layout(constant_id = 11) const uint INDEXED = 0;   // rows of x are chosen by a list
// Of several matrices: how often a work group takes the next rows; 0: one matrix.
layout(constant_id = 12) const uint TURNS = 0;
layout(constant_id = 13) const float EPSILON = 0;  // of the norm
// Of the second matrix and those behind it: floats behind y, [batch][their rows].
layout(constant_id = 14) const uint Y_AT_1 = 0;
layout(constant_id = 15) const uint Y_AT_2 = 0;
layout(constant_id = 16) const uint Y_AT_3 = 0;

#define STAGE_ARGS MatvecFixedArgs
#include "shaders/stage_order.glsl"

// Of the group's matrix.
uint64_t codes;
uint64_t scales;
uint64_t biases;
uint row_count;
uint y_at;  // floats behind y, of this row of the batch

uint64_t address_of(uint units) { return uint64_t(args.base) + uint64_t(units) * MOE_FIXED_UNIT; }

float keep_inputs() {
  const uint source = INDEXED != 0 ? args.indices.v[gl_WorkGroupID.y] : gl_WorkGroupID.y;
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  const uint64_t x = uint64_t(args.x) + uint64_t(source * COLS) * 4;
  await_handed(HandedF32x4(x), COLS / 4);
  return keep_row(HandedF32(x), args.factor, EPSILON);
}

void find_rows(uint first, out RowRef rows[DOTS]) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    rows[r] = row_ref(codes, scales, biases, min(first + r, row_count - 1));
  }
}

HandedF32 number_of(uint row) {
  return HandedF32(uint64_t(args.y) + uint64_t(y_at + row) * 4);
}
HandedF32 added_to(uint row) {
  return HandedF32(uint64_t(number_of(row)) + uint64_t(int64_t(args.added_at)) * 4);
}

float added[ROWS];  // of the rows of this turn, as far as this lane writes them

bool writes_row(uint first, uint r, uint lane) {
  return lane == r % team_lanes() && first + r < row_count;
}
float load_added(uint first, uint r, uint lane) {
  return writes_row(first, r, lane) ? added_to(first + r).v[0] : 0.0;
}

// Loads what is added long before it is needed: an earlier stage wrote it.
void begin_rows(uint first, uint lane) {
  if (ADDS == 0) return;
  [[unroll]] for (uint r = 0; r < ROWS; ++r) added[r] = load_added(first, r, lane);
}

void store_rows(uint first, float sums[DOTS], uint lane) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (ADDS != 0) {
      LOOK_AGAIN(added[r], load_added(first, r, lane));
      sums[r] = added[r] + sums[r];
    }
    if (writes_row(first, r, lane)) number_of(first + r).v[0] = sums[r];
  }
}

void run_stage() {
  const uint at_once = rows_at_once();
  uint group = gl_WorkGroupID.x;
  uint matrix = 0;
  if (TURNS != 0) {
    [[dont_unroll]] while (matrix + 1 < MOE_FIXED_MATRICES) {
      const uint groups = (args.rows[matrix] + at_once * TURNS - 1) / (at_once * TURNS);
      if (group < groups) break;
      group -= groups;
      ++matrix;
    }
  }
  codes = address_of(args.codes[matrix]);
  scales = address_of(args.scales[matrix]);
  biases = address_of(args.biases[matrix]);
  row_count = args.rows[matrix];
  y_at = gl_WorkGroupID.y * args.y_stride;
  if (matrix > 0) {
    const uint behind = matrix == 1 ? Y_AT_1 : matrix == 2 ? Y_AT_2 : Y_AT_3;
    y_at = behind + gl_WorkGroupID.y * row_count;
  }
  if (TURNS != 0) {
    const uint first = group * (at_once * TURNS);
    take_turns(first, min(row_count, first + at_once * TURNS), at_once);
  } else {
    take_turns(group * at_once, row_count, gl_NumWorkGroups.x * at_once);
  }
}
