// The second half of experts for a few rows, with activations in fixed point. The activations of all
// slots, times the slots' weights, are one long row of inputs; a row of the result is its product
// with the slots' rows of weights one after another.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/down_args.h"

layout(local_size_x_id = 0) in;  // before gl_WorkGroupSize is named

#define WIDE_CHUNKS
#include "shaders/weights.glsl"

layout(constant_id = 10) const uint SLOTS = 1;        // that one dispatch computes
layout(constant_id = 11) const uint BY_KIND = 0;      // records differ
layout(constant_id = 12) const uint BLOCK_ROWS = 8;   // of a work group, at most its threads
layout(constant_id = 14) const uint ADDS_BIAS = 0;
// How many stages back the choices were made, and gate_up's activations.
layout(constant_id = 15) const uint CHOSEN_BACK = 2;
layout(constant_id = 16) const uint ACTIVATED_BACK = 1;
#define INPUT_ROWS SLOTS
#include "shaders/fixed_dots.glsl"
#include "shaders/expert_slots.glsl"

#define STAGE_ARGS DownArgs
#include "shaders/stage_order.glsl"

const uint LONG_CHUNKS = SLOTS * CHUNKS;
const uint MOST_WAYS = 128;
shared float products[MOST_WAYS + BLOCK_ROWS];  // [rows][ways] of subgroups
shared float slot_weight[SLOTS];
shared uint has_slot[SLOTS];  // an expert computes it

uint place_of(uint slot) { return gl_WorkGroupID.y * args.slots + args.first_slot + slot; }

uint64_t record_of(uint slot) {
  const uint expert = args.choices.v[place_of(slot)].expert;
  return BY_KIND != 0 ? find_record_of(args.records, args.experts, expert, args.kinds, args.kind)
                      : find_record(args.records, args.experts, expert);
}

HandedF32 act_of(uint slot) {
  return HandedF32(uint64_t(args.act) + uint64_t(place_of(slot) * args.act_stride) * 4);
}

// The activations of all slots. One that no expert computed was not written.
void keep_inputs() {
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  barrier();
  if (has_slot[SLOTS - 1] != 0) await_handed(HandedF32x4(act_of(SLOTS - 1)), COLS / 4);
  [[dont_unroll]] for (uint v = thread_index(); v < SLOTS * (COLS / 4); v += gl_WorkGroupSize.x) {
    const uint slot = v / (COLS / 4);
    vec4 four = vec4(0);
    if (has_slot[slot] != 0) four = read_handed_word(act_of(slot), v % (COLS / 4));
    keep_word(slot, v % (COLS / 4), four, slot_weight[slot]);
  }
  barrier();
}

void run_stage() {
  await_stage(CHOSEN_BACK);
  // The end of a stage in between says nothing of the activations.
  if (ACTIVATED_BACK != 1) await_stage(ACTIVATED_BACK);
  for (uint slot = thread_index(); slot < SLOTS; slot += gl_WorkGroupSize.x) {
    slot_weight[slot] = args.choices.v[place_of(slot)].weight;
    has_slot[slot] = record_of(slot) != 0 ? 1 : 0;
  }
  const uint first = gl_WorkGroupID.x * BLOCK_ROWS;
  // Some subgroups for each row, or some rows for each subgroup.
  const uint ways = max(gl_NumSubgroups / BLOCK_ROWS, 1);
  const uint way = gl_SubgroupID % ways;
  const uint rows_at_once = gl_NumSubgroups / ways;
  const uint chunks_at_once = ways * gl_SubgroupSize;
  const uint i = thread_index();
  const bool has_row = i < BLOCK_ROWS && first + i < args.rows;
  const uint number = gl_WorkGroupID.y * args.y_stride + first + i;
  float before = 0;  // loaded long before it is needed: an earlier stage wrote it
  if (has_row) before = args.added.v[number];
  bool is_kept = false;
  // All threads take as many turns, those without a row or a chunk too: there is a barrier in the
  // first, and lavapipe waits at it in every turn, so that subgroups with fewer turns would end before
  // the others are done.
  [[dont_unroll]] for (uint turn = 0; turn < BLOCK_ROWS; turn += rows_at_once) {
    const uint r = turn + gl_SubgroupID / ways;
    const uint row = min(first + r, args.rows - 1);
    float sums[DOTS];
    sums[0] = 0;
    [[dont_unroll]] for (uint begin = 0; begin < LONG_CHUNKS; begin += STEPS * chunks_at_once) {
      uint chunk = begin + way * gl_SubgroupSize + gl_SubgroupInvocationID;
      Chunk w[STEPS][DOTS];
      bool is_there[STEPS];
      [[unroll]] for (uint step = 0; step < STEPS; ++step) {
        const uint at = min(chunk + step * chunks_at_once, LONG_CHUNKS - 1);
        const uint64_t record = record_of(at / CHUNKS);
        is_there[step] = record != 0 && chunk + step * chunks_at_once < LONG_CHUNKS;
        if (is_there[step]) {
          w[step][0] = load_chunk(row_ref(record + args.codes, record + args.scales,
                                          record + args.biases, row), at % CHUNKS);
        }
      }
      if (!is_kept) {
        keep_inputs();
        is_kept = true;
      }
      [[unroll]] for (uint step = 0; step < STEPS; ++step) {
        if (is_there[step]) add_chunk(w[step], chunk, sums);
        chunk += chunks_at_once;
      }
    }
    const float sum = subgroupAdd(sums[0]);
    if (subgroupElect() && r < BLOCK_ROWS) products[r * ways + way] = sum;
  }
  barrier();
  LOOK_AGAIN(before, has_row ? args.added.v[number] : 0.0);
  if (!has_row) return;
  float sum = 0;
  [[dont_unroll]] for (uint j = 0; j < ways; ++j) sum += products[i * ways + j];
  if (ADDS_BIAS != 0) {
    [[dont_unroll]] for (uint slot = 0; slot < SLOTS; ++slot) {
      if (has_slot[slot] == 0) continue;
      const Choice choice = args.choices.v[place_of(slot)];
      sum = fma(choice.weight, args.bias.v[choice.expert * args.rows + first + i], sum);
    }
  }
  args.y.v[number] = before + sum;
}
