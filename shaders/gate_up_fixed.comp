// gate_up with inputs in fixed point: gate and up of the chosen experts together, and their
// activation.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/gate_up_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#define WIDE_CHUNKS
#include "shaders/weights.glsl"

layout(constant_id = 10) const uint GATE_UP = 2;  // matrices; 1: the product of the gate alone
layout(constant_id = 11) const uint BY_KIND = 0;  // records differ
layout(constant_id = 12) const uint ACTIVATION = 0;
layout(constant_id = 13) const float ACTIVATION_LIMIT = 0;
layout(constant_id = 14) const uint ADDS_BIAS = 0;  // of gate and up
// Whether each work group makes the choice for itself from the router's logits, while the router's stage
// makes the one that is written. Behind a router of the same rows alone.
layout(constant_id = 15) const uint CHOOSES = 0;
#define MATRICES GATE_UP
// The inputs may be there before the choice is: they are kept while the router is waited for.
#ifdef ORDERED
#define KEEPS_INPUTS_FIRST
#endif
#include "shaders/fixed_turns.glsl"
#include "shaders/expert_slots.glsl"
#include "shaders/expert_activation.h"

#define STAGE_ARGS GateUpArgs
#include "shaders/stage_order.glsl"

#ifdef ORDERED
layout(constant_id = 16) const uint EXPERTS = 256;
layout(constant_id = 17) const uint TOP_K = 8;
layout(constant_id = 18) const uint ROUTER_SIGMOIDS = 0;
layout(constant_id = 19) const uint ROUTER_BIAS = 0;
layout(constant_id = 20) const uint ROUTER_GROUPS = 1;
layout(constant_id = 21) const uint ROUTER_KEPT = 1;
layout(constant_id = 22) const float ROUTER_SCALE = 1.0;
layout(constant_id = 23) const uint SHARED_GATE = 1;
layout(constant_id = 24) const uint ROUTER_EXPERT_SCALES = 0;
layout(constant_id = 25) const uint ROUTER_LANES = 8;
#include "shaders/route.glsl"

shared uint found_expert;

// The expert of a slot of the row, as the router's stage chooses it.
uint find_expert(uint row, uint slot) {
  RouteArgs route = RouteOfLayer(uint64_t(args.choices)).v[0];
  const bool is_live = route.rows.v[row].live != 0;
  const RowRoute found = find_route(route, row, is_live);
  if (gl_SubgroupID == 0 && subgroupElect()) {
    found_expert = found.is_routed ? chosen[slot].expert : MOE_NO_EXPERT;
  }
  barrier();
  return found_expert;
}
#endif

// The expert of a slot of the row, after the wait for the stage that chooses. The shared expert is not
// chosen; of a row without a choice nobody reads what it gives.
uint await_expert(uint row, uint slot) {
#ifdef ORDERED
  if (CHOOSES != 0) return slot < TOP_K ? find_expert(row, slot) : EXPERTS;
#endif
  await_stage(1);
  return args.choices.v[row * args.slots + slot].expert;
}

uint expert;      // of the group
uint64_t record;  // its
uint place;       // of its slot

float keep_inputs() {
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  const uint64_t x = uint64_t(args.x) + uint64_t(gl_WorkGroupID.z * args.x_stride) * 4;
  await_handed(HandedF32x4(x), COLS / 4);
  return keep_row(HandedF32(x), args.factor, args.eps);
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

void begin_rows(uint first, uint lane) {}

void store_rows(uint first, float sums[DOTS], uint lane) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (lane == r % team_lanes() && first + r < args.rows) {
      float value = sums[r];
      float other = sums[DOTS - ROWS + r];
      if (ADDS_BIAS != 0) {
        const uint at = expert * 2 * args.rows + first + r;
        value += args.bias.v[at];
        if (MATRICES == 2) other += args.bias.v[at + args.rows];
      }
      if (MATRICES == 2) value = activate(value, other);
      args.act.v[place * args.act_stride + first + r] = value;
    }
  }
}

void run_stage() {
#ifdef KEEPS_INPUTS_FIRST
  kept_after = keep_inputs();
#endif
  const uint slot = args.first_slot + gl_WorkGroupID.y;
  place = gl_WorkGroupID.z * args.slots + slot;
  expert = await_expert(gl_WorkGroupID.z, slot);
  record = BY_KIND != 0 ? find_record_of(args.records, args.experts, expert, args.kinds, args.kind)
                        : find_record(args.records, args.experts, expert);
  if (record == 0) return;
  take_turns(gl_WorkGroupID.x * rows_at_once(), args.rows, gl_NumWorkGroups.x * rows_at_once());
}
