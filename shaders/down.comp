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
layout(constant_id = 14) const uint ADDS_BIAS = 0;
#define INPUT_ROWS SLOTS
#include "shaders/input_row.glsl"
#include "shaders/row_dots.glsl"
#include "shaders/expert_slots.glsl"

layout(push_constant, scalar) uniform Push { DownArgs args; };

shared uint has_slot[SLOTS];
shared float products[SLOTS * BLOCK_ROWS];

uint place_of(uint slot) { return gl_WorkGroupID.y * args.slots + args.first_slot + slot; }

InputRow slot_input(uint slot) {
  InputRow from;
  from.x = HandedF32(uint64_t(args.act) + uint64_t(place_of(slot) * args.act_stride) * 4);
  from.factor = F32(uint64_t(0));
  from.before = 1;
  from.after = 1;
  return from;
}

uint64_t record_of(uint slot) {
  const uint expert = args.choices.v[place_of(slot)].expert;
  return BY_KIND != 0 ? find_record_of(args.records, args.experts, expert, args.kinds, args.kind)
                      : find_record(args.records, args.experts, expert);
}

// ROWS rows of a slot's matrix, from row `first` of the group's block.
struct Item {
  uint64_t record;  // 0: nothing is computed
  uint slot;
  uint first;
};

// The inputs of all slots, so that every thread loads what it keeps at once.
void keep_slots() {
  if (IS_INPUT_SHARED == 0) return;
  const uint count = CHUNKS * VECTORS;
  for (uint i = thread_index(); i < SLOTS * count; i += gl_WorkGroupSize.x) {
    keep_vector(i / count, i % count, read_input(slot_input(i / count), 4 * (i % count)));
  }
}

const uint BLOCK_ITEMS = BLOCK_ROWS / ROWS;

Item load_item(uint index, Team team, out RowRef rows[DOTS], out Chunk w[IN_FLIGHT]) {
  Item item;
  item.slot = index / BLOCK_ITEMS;
  item.first = index % BLOCK_ITEMS * ROWS;
  item.record = item.slot < SLOTS ? record_of(item.slot) : 0;
  const uint begin = gl_WorkGroupID.x * BLOCK_ROWS + item.first;
  if (item.record != 0) {
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      rows[r] = row_ref(item.record + args.codes, item.record + args.scales,
                        item.record + args.biases, min(begin + r, args.rows - 1));
    }
    load_steps(rows, team.lane, team, w);
  }
  return item;
}

// Of a row of the group's block, which may be behind the last.
float bias_of(uint slot, uint i) {
  const uint row = min(gl_WorkGroupID.x * BLOCK_ROWS + i, args.rows - 1);
  return args.bias.v[args.choices.v[place_of(slot)].expert * args.rows + row];
}

void compute_item(Item item, Team team, RowRef rows[DOTS], Chunk w[IN_FLIGHT]) {
  float sums[DOTS];
  dot_rows(rows, slot_input(item.slot), item.slot, team, w, sums);
  const float weight = SLOTS_APART != 0 ? 1 : args.choices.v[place_of(item.slot)].weight;
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (team.lane == r % team.lanes) {
      float sum = sums[r];
      if (ADDS_BIAS != 0) sum += bias_of(item.slot, item.first + r);
      products[item.slot * BLOCK_ROWS + item.first + r] = weight * sum;
    }
  }
}

// What the rows' sums are added to, by the threads that store them: loaded before all else.
float load_row(uint i) {
  const uint row = gl_WorkGroupID.x * BLOCK_ROWS + i;
  if (SLOTS_APART != 0 || i >= BLOCK_ROWS || row >= args.rows) return 0;
  return args.added.v[gl_WorkGroupID.y * args.y_stride + row];
}

void store_row(uint i, float sum) {
  const uint row = gl_WorkGroupID.x * BLOCK_ROWS + i;
  float added = 0;
  for (uint slot = 0; slot < SLOTS; ++slot) {
    if (has_slot[slot] == 0) continue;
    const float product = products[slot * BLOCK_ROWS + i];
    if (SLOTS_APART != 0) {
      args.y.v[place_of(slot) * args.y_stride + row] = product;
    } else {
      added += product;
    }
  }
  if (SLOTS_APART == 0) args.y.v[gl_WorkGroupID.y * args.y_stride + row] = sum + added;
}

void keep_inputs() {
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  for (uint slot = thread_index(); slot < SLOTS; slot += gl_WorkGroupSize.x) {
    has_slot[slot] = record_of(slot) != 0 ? 1 : 0;
  }
  keep_slots();
  barrier();
}

void main() {
  const Team team = team_of_lane();
  const float before = load_row(thread_index());
  // The first weights are on their way while the inputs are kept. There is one copy of the code for
  // all turns: a program that runs once waits for its own bytes.
  bool is_kept = false;
  uint index = team.index;
  [[dont_unroll]] do {
    RowRef rows[DOTS];
    Chunk w[IN_FLIGHT];
    const Item item = load_item(index, team, rows, w);
    if (!is_kept) keep_inputs();
    is_kept = true;
    if (item.record != 0) compute_item(item, team, rows, w);
    index += team.count;
  } while (index < SLOTS * BLOCK_ITEMS);
  barrier();
  const uint i = thread_index();
  if (i < BLOCK_ROWS && gl_WorkGroupID.x * BLOCK_ROWS + i < args.rows) store_row(i, before);
}
