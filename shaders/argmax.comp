// The largest logit of a part of a row; with MERGE, of a row from its parts (argmax_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/argmax_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { ArgmaxArgs args; };

shared Largest partials[128];

const uint kNone = 0xffffffffu;

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

Largest best_of_group(Largest mine) {
  for (uint distance = 1; distance < gl_SubgroupSize; distance *= 2) {
    mine = better(mine, across(mine, distance));
  }
  if (subgroupElect()) partials[gl_SubgroupID] = mine;
  barrier();
  for (uint i = 0; i < gl_NumSubgroups; ++i) mine = better(mine, partials[i]);
  return mine;
}

#ifdef MERGE

void main() {
  const uint row = gl_WorkGroupID.x;
  Largest mine = Largest(0.0, kNone, 0);
  for (uint i = thread_id(); i < args.parts; i += gl_WorkGroupSize.x) {
    mine = better(mine, args.found.v[row * args.parts + i]);
  }
  mine = best_of_group(mine);
  if (mine.id == kNone) mine.id = 0;
  if (thread_id() == 0) args.best.v[row] = mine;
}

#else

void main() {
  const uint row = gl_WorkGroupID.y;
  const uint share = (args.width + args.parts - 1) / args.parts;
  const uint begin = min(args.width, gl_WorkGroupID.x * share);
  const uint end = min(args.width, begin + share);
  Largest mine = Largest(0.0, kNone, 0);
  for (uint i = begin + thread_id(); i < end; i += gl_WorkGroupSize.x) {
    const float x = args.logits.v[row * args.stride + i];
    const uint bits = floatBitsToUint(x) & 0x7fffffffu;
    mine = better(mine, Largest(x, bits > 0x7f800000u ? kNone : i, bits >= 0x7f800000u ? 1 : 0));
  }
  mine = best_of_group(mine);
  if (thread_id() == 0) args.found.v[row * args.parts + gl_WorkGroupID.x] = mine;
}

#endif
