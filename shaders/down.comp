// The second half of experts for a few rows. A work group owns rows of the result and computes them
// for all slots, so that they are added in order.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/down_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#include "shaders/weights.glsl"

layout(constant_id = 10) const uint SLOTS = 1;         // that one dispatch computes
layout(constant_id = 11) const uint BY_KIND = 0;     // records differ
layout(constant_id = 12) const uint BLOCK_ROWS = 16;   // of a work group, a multiple of ROWS
layout(constant_id = 13) const uint SLOTS_APART = 0;   // each slot's product by itself
#define INPUT_ROWS SLOTS
#include "shaders/input_row.glsl"
#include "shaders/row_dots.glsl"
#include "shaders/expert_slots.glsl"

layout(push_constant, scalar) uniform Push { DownArgs args; };

shared uvec2 slot_records[SLOTS];
shared float products[SLOTS * BLOCK_ROWS];

uint place_of(uint slot) { return gl_WorkGroupID.y * args.slots + args.first_slot + slot; }

InputRow slot_input(uint slot) {
  InputRow from;
  from.x = F32(uint64_t(args.act) + uint64_t(place_of(slot) * args.act_stride) * 4);
  from.factor = from.x;
  from.before = 1;
  from.after = 1;
  return from;
}

void load_slots() {
  for (uint slot = thread_index(); slot < SLOTS; slot += gl_WorkGroupSize.x) {
    const uint expert = args.choices.v[place_of(slot)].expert;
    slot_records[slot] = unpackUint2x32(
        BY_KIND != 0
            ? find_record_of(args.records, args.experts, expert, args.kinds, args.kind)
            : find_record(args.records, args.experts, expert));
  }
  [[unroll]] for (uint slot = 0; slot < SLOTS; ++slot) keep_row(slot, slot_input(slot));
}

// Rows [first, first + ROWS) of the block, times the slot's weight.
void compute_rows(uint slot, uint first, Team team) {
  const uint64_t record = packUint2x32(slot_records[slot]);
  if (record == 0) return;
  RowRef rows[DOTS];
  const uint begin = gl_WorkGroupID.x * BLOCK_ROWS + first;
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    rows[r] = row_ref(record + args.codes, record + args.scales, record + args.biases,
                      min(begin + r, args.rows - 1));
  }
  float sums[DOTS];
  dot_rows(rows, slot_input(slot), slot, team, sums);
  const float weight = SLOTS_APART != 0 ? 1 : args.choices.v[place_of(slot)].weight;
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (team.lane == r % team.lanes) products[slot * BLOCK_ROWS + first + r] = weight * sums[r];
  }
}

void store_row(uint i) {
  const uint row = gl_WorkGroupID.x * BLOCK_ROWS + i;
  float sum = 0;
  for (uint slot = 0; slot < SLOTS; ++slot) {
    if (slot_records[slot] == uvec2(0)) continue;
    const float product = products[slot * BLOCK_ROWS + i];
    if (SLOTS_APART != 0) {
      args.y.v[place_of(slot) * args.y_stride + row] = product;
    } else {
      sum += product;
    }
  }
  if (SLOTS_APART == 0) args.y.v[gl_WorkGroupID.y * args.y_stride + row] += sum;
}

void main() {
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  load_slots();
  barrier();
  const Team team = team_of_lane();
  const uint blocks = BLOCK_ROWS / ROWS;
  for (uint item = team.index; item < SLOTS * blocks; item += team.count) {
    compute_rows(item / blocks, item % blocks * ROWS, team);
  }
  barrier();
  for (uint i = thread_index(); i < BLOCK_ROWS; i += gl_WorkGroupSize.x) {
    if (gl_WorkGroupID.x * BLOCK_ROWS + i < args.rows) store_row(i);
  }
}
