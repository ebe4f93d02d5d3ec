// The order of the stages of a token, where the command list has no barrier between them: each work
// group waits until all work groups of the stage before are done, and then counts itself done
// (stage_args.h). So a stage starts early, and what does not depend on the one before is done while
// it waits: loads of weights and states, tables, inputs of earlier stages. Only a device that starts
// the work groups of a dispatch after all of the one before have started comes to an end with this.
//
// Where the next stage needs only what a stage does first, it waits for that: await_first().
//
// A program is written once: it says STAGE_ARGS, includes this, has run_stage() in place of main(), and
// calls await_stage() before it reads or writes what another stage does. Without -DORDERED nothing of
// this is left. Buffers that one stage hands to another are HandedF32 or Choices: coherent where stages
// have no barriers, which is what makes writes seen, since nothing else empties a core's own cache.
#ifndef MOEPACK_SHADERS_STAGE_ORDER_GLSL
#define MOEPACK_SHADERS_STAGE_ORDER_GLSL

#include "shaders/stage_args.h"

void run_stage();

#ifdef ORDERED

layout(buffer_reference, scalar, buffer_reference_align = 8) coherent volatile buffer StageRecord {
  uint v[];
};
layout(push_constant, scalar) uniform Push {
  STAGE_ARGS args;
  layout(offset = MOE_STAGE_AT) StageRecord stage;
};

// Looks before a wait is given up, some seconds. The results are then wrong, the host is told, and
// those who wait still, or will, give up when they look at that the next time.
const uint kMostPolls = 1u << 24;
const uint kPollsBetween = 1u << 12;
bool has_awaited = false;

void give_up() {
  stage.v[MOE_STAGE_WRONG] = 1;
  const uint64_t lost = packUint2x32(uvec2(stage.v[MOE_STAGE_LOST], stage.v[MOE_STAGE_LOST + 1]));
  StageRecord(lost).v[0] = 1;
}

// Returns when a word of the stage `back` before this one is 0. All threads call it.
void await_word(uint back, uint word) {
  if (gl_LocalInvocationIndex == 0) {
    StageRecord before = StageRecord(uint64_t(stage) - back * MOE_STAGE_BYTES);
    uint left = before.v[word];
    [[dont_unroll]] for (uint i = 1; left != 0 && i < kMostPolls; ++i) {
      left = before.v[word];
      if (i % kPollsBetween != 0) continue;
      if ((before.v[MOE_STAGE_WRONG] | stage.v[MOE_STAGE_WRONG]) != 0) break;
    }
    if (left != 0) give_up();
  }
  barrier();
}

// Returns when the stage `back` before this one, 1 or 2, is done. All threads call it.
void await_stage(uint back) {
  if (back == 1) has_awaited = true;
  await_word(back, MOE_STAGE_LEFT);
}

// Returns when all work groups of the stage before have called hand_first(); of all that those wrote
// only what they wrote until then is there. All threads call it. The stage behind waits for both.
void await_first() {
  has_awaited = true;
  await_word(1, MOE_STAGE_FIRST);
}

// One thread of each work group calls it once, after a barrier of the device behind the writes of all.
void hand_first() { atomicAdd(stage.v[MOE_STAGE_FIRST], 0xffffffffu); }

// All threads call it last. A work group that had nothing to wait for waits here, so that a stage
// that is done says that those before it are, too.
void leave_stage() {
  if (!has_awaited) await_stage(1);
  groupMemoryBarrier();
  barrier();
  if (gl_LocalInvocationIndex == 0) {
    memoryBarrierBuffer();
    atomicAdd(stage.v[MOE_STAGE_LEFT], 0xffffffffu);
  }
}

#else

layout(push_constant, scalar) uniform Push { STAGE_ARGS args; };
void await_stage(uint back) {}
void hand_first() {}
void leave_stage() {}

#endif

void main() {
  run_stage();
  leave_stage();
}

#endif
