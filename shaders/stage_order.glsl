// The order of the stages of a token, where the command list has no barrier between them: each work
// group waits until all work groups of the stage before are done, and then counts itself done
// (stage_args.h). So a stage starts early, and what does not depend on the one before is done while
// it waits: loads of weights and states, tables, inputs of earlier stages. Only a device that starts
// the work groups of a dispatch after all of the one before have started comes to an end with this.
//
// Most of what a stage reads is there sooner than the count of the one before says, and is waited for word
// by word (handed.glsl): such a program does not call await_stage() for it, and counts all the same. So a
// stage that is done says nothing of those before it, but that what it read of them was there.
//
// A program is written once: it says STAGE_ARGS, includes this, has run_stage() in place of main(), and
// calls await_stage() before it reads or writes what another stage does and does not hand on by words.
// Without -DORDERED nothing of this is left. Buffers that one stage hands to another are HandedF32,
// SharedF32 or Choices: coherent where stages have no barriers, which is what makes writes seen, since
// nothing else empties a core's own cache.
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

void give_up() {
  stage.v[MOE_STAGE_WRONG] = 1;
  const uint64_t lost = packUint2x32(uvec2(stage.v[MOE_STAGE_LOST], stage.v[MOE_STAGE_LOST + 1]));
  StageRecord(lost).v[0] = 1;
}

StageRecord stage_before(uint back) {
  return StageRecord(uint64_t(stage) - back * MOE_STAGE_BYTES);
}
bool is_given_up() { return (stage_before(1).v[MOE_STAGE_WRONG] | stage.v[MOE_STAGE_WRONG]) != 0; }

void await_count(StageRecord before) {
  uint left = before.v[MOE_STAGE_LEFT];
  [[dont_unroll]] for (uint i = 1; left != 0 && i < kMostPolls; ++i) {
    left = before.v[MOE_STAGE_LEFT];
    if (i % kPollsBetween == 0 && is_given_up()) break;
  }
  if (left != 0) give_up();
}

// Returns when the stage `back` before this one, 1 or 2, is done. All threads call it.
void await_stage(uint back) {
  if (gl_LocalInvocationIndex == 0) await_count(stage_before(back));
  barrier();
}

void await_end() {
  await_count(stage_before(1));
  memoryBarrierBuffer();  // what is loaded next is loaded behind that
}

// All threads call it last: what they have written is there before the count.
void leave_stage() {
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
void leave_stage() {}

#endif

void main() {
  run_stage();
  leave_stage();
}

#endif
