// What the stages of a token hand to each other where they have no barriers (stage_order.glsl). Each
// word stands for itself: it is MOE_NOT_HANDED until it is written, and whoever reads it looks until it
// is something else. So a number is on its way to those who wait for it as soon as it is known, without
// a counter, a fence and a second load behind them. Without -DORDERED these are plain loads.
#ifndef MOEPACK_SHADERS_HANDED_GLSL
#define MOEPACK_SHADERS_HANDED_GLSL

// So they are in a program that says WAITS_BY_COUNTS, which calls await_stage() instead.
#if defined(ORDERED) && !defined(WAITS_BY_COUNTS)

#include "shaders/stage_args.h"

bool is_handed(float x) { return floatBitsToUint(x) != MOE_NOT_HANDED; }
bool is_handed(vec2 x) { return all(notEqual(floatBitsToUint(x), uvec2(MOE_NOT_HANDED))); }
bool is_handed(vec4 x) { return all(notEqual(floatBitsToUint(x), uvec4(MOE_NOT_HANDED))); }

// Returns when the stage before is done (stage_order.glsl).
void await_end();

// x = LOAD, a load of handed numbers, when all of them are there. All the same if they are not when
// the stage before is done: then it wrote this, or nothing, of a row that is not computed. Short, since
// it is in many places; lanes meet again behind the loop where these forms run (README.md).
#define TAKE_HANDED(x, LOAD) \
  {                          \
    x = LOAD;                \
    LOOK_AGAIN(x, LOAD)      \
  }
// The same where x was loaded already.
#define LOOK_AGAIN(x, LOAD)                                         \
  {                                                                 \
    uint looks = 0;                                                 \
    [[dont_unroll]] while (!is_handed(x) && looks < MOE_MOST_LOOKS) { \
      x = LOAD;                                                     \
      ++looks;                                                      \
    }                                                               \
    if (!is_handed(x)) {                                            \
      await_end();                                                  \
      x = LOAD;                                                     \
    }                                                               \
  }

// Returns when the last few of `count` vectors are there: one subgroup looks, where all threads of the
// device would hinder those that write. The others are there about then. All threads call it.
void await_handed(HandedF32x4 from, uint count) {
  if (gl_SubgroupID == 0) {
    const uint i = count - 1 - min(gl_SubgroupInvocationID, count - 1);
    vec4 four;
    TAKE_HANDED(four, from.v[i]);
  }
  barrier();
}

#else

#define TAKE_HANDED(x, LOAD) { x = LOAD; }
#define LOOK_AGAIN(x, LOAD)
void await_handed(HandedF32x4 from, uint count) {}

#endif

#endif
