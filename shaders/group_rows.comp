// Which rows use which expert (group_rows_args.h). Every work group counts all experts for itself, so
// that one dispatch does it all, and then lists the pairs of its own.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/group_rows_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EXPERTS = 257;
layout(push_constant, scalar) uniform Push { GroupRowsArgs args; };

shared uint counts[EXPERTS];
shared uint found_by[128];  // pairs of this expert, by subgroup

// Pairs and tiles of the experts below `end`; the same in every thread.
uvec2 sum_below(uint end) {
  uvec2 sum = uvec2(0);
  for (uint e = gl_SubgroupInvocationID; e < end; e += gl_SubgroupSize) {
    sum += uvec2(counts[e], (counts[e] + args.tile - 1) / args.tile);
  }
  return uvec2(subgroupAdd(sum.x), subgroupAdd(sum.y));
}

void write_totals() {
  const uvec2 all = sum_below(EXPERTS);
  if (thread_id() == 0) args.offsets.v[EXPERTS] = all.x;
  for (uint i = thread_id(); i < args.dispatches; i += gl_WorkGroupSize.x) {
    args.sizes.v[i].y = all.y;
    args.sizes.v[i].z = 1;
  }
}

void main() {
  const uint expert = gl_WorkGroupID.x;
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) counts[e] = 0;
  barrier();
  // Each thread takes consecutive pairs, so that what it lists is in order.
  const uint share = (args.count + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
  const uint begin = min(args.count, thread_id() * share);
  const uint end = min(args.count, begin + share);
  uint found = 0;
  for (uint i = begin; i < end; ++i) {
    const uint e = args.choices.v[i].expert;
    if (e >= EXPERTS) continue;
    atomicAdd(counts[e], 1);
    if (e == expert) ++found;
  }
  const uint found_together = subgroupAdd(found);
  if (subgroupElect()) found_by[gl_SubgroupID] = found_together;
  barrier();
  if (expert == 0) write_totals();
  const uvec2 base = sum_below(expert);
  const uint count = counts[expert];
  if (thread_id() == 0) args.offsets.v[expert] = base.x;
  for (uint t = thread_id(); t * args.tile < count; t += gl_WorkGroupSize.x) {
    args.tiles.v[base.y + t] =
        ExpertTile(expert, base.x + t * args.tile, min(args.tile, count - t * args.tile));
  }
  uint at = base.x + subgroupExclusiveAdd(found);
  for (uint i = 0; i < gl_SubgroupID; ++i) at += found_by[i];
  if (found == 0) return;
  for (uint i = begin; i < end; ++i) {
    if (args.choices.v[i].expert == expert) args.pairs.v[at++] = i;
  }
}
