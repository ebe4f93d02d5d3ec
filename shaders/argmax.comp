// The largest logit of each row (argmax_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/last_group.glsl"
#include "shaders/argmax_args.h"

layout(local_size_x_id = 0) in;
#define STAGE_ARGS ArgmaxArgs
#include "shaders/stage_order.glsl"

// What the work groups of a row hand to the last of them.
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer SharedLargest {
  Largest v[];
};

shared Largest partials[128];

const uint kNone = 0xffffffffu;
const uint kAtOnce = 4;  // values that a thread loads together

// Any number comes before none.
Largest better(Largest a, Largest b) {
  const bool takes_b = b.id != kNone && (a.id == kNone || b.value > a.value ||
                                         (b.value == a.value && b.id < a.id));
  return Largest(takes_b ? b.value : a.value, takes_b ? b.id : a.id, a.not_finite | b.not_finite);
}

Largest across(Largest x, uint distance) {
  return Largest(subgroupShuffleXor(x.value, distance), subgroupShuffleXor(x.id, distance),
                 subgroupShuffleXor(x.not_finite, distance));
}

// The same in all threads.
Largest best_of_group(Largest mine) {
  [[dont_unroll]] for (uint distance = 1; distance < gl_SubgroupSize; distance *= 2) {
    mine = better(mine, across(mine, distance));
  }
  barrier();
  if (subgroupElect()) partials[gl_SubgroupID] = mine;
  barrier();
  for (uint i = 0; i < gl_NumSubgroups; ++i) mine = better(mine, partials[i]);
  return mine;
}

Largest best_of_part(uint row) {
  const uint share = (args.width + args.parts - 1) / args.parts;
  const uint begin = min(args.width, gl_WorkGroupID.x * share);
  const uint end = min(args.width, begin + share);
  Largest mine = Largest(0.0, kNone, 0);
  for (uint first = begin + thread_id(); first < end; first += kAtOnce * gl_WorkGroupSize.x) {
    float x[kAtOnce];
    [[unroll]] for (uint j = 0; j < kAtOnce; ++j) {
      const uint i = min(first + j * gl_WorkGroupSize.x, end - 1);
      x[j] = args.logits.v[row * args.stride + i];
    }
    [[unroll]] for (uint j = 0; j < kAtOnce; ++j) {
      const uint i = min(first + j * gl_WorkGroupSize.x, end - 1);  // again does no harm
      const uint bits = floatBitsToUint(x[j]) & 0x7fffffffu;
      const bool competes = bits <= 0x7f800000u && i < args.limit;
      mine = better(mine, Largest(x[j], competes ? i : kNone, bits >= 0x7f800000u ? 1 : 0));
    }
  }
  return best_of_group(mine);
}

void run_stage() {
  await_stage(1);
  const uint row = gl_WorkGroupID.y;
  Largest mine = best_of_part(row);
  SharedLargest found = SharedLargest(args.found);
  if (thread_id() == 0) found.v[row * args.parts + gl_WorkGroupID.x] = mine;
  if (!is_last_group(args.arrived, row, args.parts)) return;
  mine = Largest(0.0, kNone, 0);
  for (uint i = thread_id(); i < args.parts; i += gl_WorkGroupSize.x) {
    mine = better(mine, found.v[row * args.parts + i]);
  }
  mine = best_of_group(mine);
  if (mine.id == kNone) mine.id = 0;
  if (thread_id() == 0) args.best.v[row] = mine;
}
