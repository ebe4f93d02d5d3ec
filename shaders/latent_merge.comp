// The parts of latent attention that splits of the keys found, merged in order (latent_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/elementary.glsl"
#include "shaders/kv.glsl"
#include "shaders/latent_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint RANK = 64;
layout(push_constant, scalar) uniform Push { LatentMergeArgs args; };

shared vec2 stats[MOE_LATENT_SPLITS];

void main() {
  const uint thread = gl_LocalInvocationIndex;
  const BatchRow place = args.rows.v[gl_WorkGroupID.y];
  if (place.live == 0) return;
  const uint n = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  const uint blocks = (place.position + MOE_LATENT_BLOCK) / MOE_LATENT_BLOCK;
  const uint share = (blocks + args.splits - 1) / args.splits;
  const uint used = (blocks + share - 1) / share;
  for (uint s = thread; s < used; s += gl_WorkGroupSize.x) {
    const uint at = 2 * (n * args.splits + s);
    stats[s] = vec2(args.stats.v[at], args.stats.v[at + 1]);
  }
  barrier();
  float most = stats[0].x;
  for (uint s = 1; s < used; ++s) most = max(most, stats[s].x);
  precise float total = 0.0;
  for (uint s = 0; s < used; ++s) total = fma(exact_exp(stats[s].x - most), stats[s].y, total);
  for (uint d = thread; d < RANK / 4; d += gl_WorkGroupSize.x) {
    vec4 sum = vec4(0.0);
    for (uint s = 0; s < used; ++s) {
      const float factor = exact_exp(stats[s].x - most);
      const uint64_t from =
          uint64_t(args.values) + uint64_t(n * args.splits + s) * (RANK * 4);
      sum = fma(vec4(factor), F32x4(from).v[d], sum);
    }
    F32x4(uint64_t(args.latent) + uint64_t(n) * (HEAD_DIM * 4)).v[d] = sum / total;
  }
}
