// Queries and compressed rows before latent attention (latent_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/kv.glsl"
#include "shaders/latent_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint RANK = 64;
layout(push_constant, scalar) uniform Push { LatentPrepareArgs args; };

const uint kRotary = HEAD_DIM - RANK;

uint row;
BatchRow place;

// Places of a pair in the part that is rotated.
uvec2 places_of(uint pair) {
  return args.is_interleaved != 0 ? uvec2(2 * pair, 2 * pair + 1) : uvec2(pair, pair + kRotary / 2);
}

vec2 rotated(vec2 x, uint pair) {
  precise float angle = float(place.position) * args.inverse_frequency.v[pair];
  precise vec2 turn = cos_sin(angle) * args.amplitude;
  precise vec2 turned = vec2(x.x * turn.x - x.y * turn.y, x.y * turn.x + x.x * turn.y);
  return turned;
}

float square_sum(uint first, float shrink) {
  float sum = 0.0;
  for (uint i = thread_id(); i < RANK; i += gl_WorkGroupSize.x) {
    const float x = args.keys.v[first + i] * shrink;
    sum = fma(x, x, sum);
  }
  return group_sum(sum);
}

void prepare_key() {
  const uint first = row * HEAD_DIM;
  Words cache = args.caches.v[place.slice];
  const uint to = place.position * HEAD_DIM;
  const float sum = square_sum(first, 1.0);
  float shrink = 1.0;
  float scale = 1.0 / sqrt(sum / float(RANK) + args.eps);
  if (!is_finite(sum)) {
    shrink = kShrink;
    scale = 1.0 / sqrt(square_sum(first, kShrink) / float(RANK));
  }
  for (uint i = thread_id(); i < RANK; i += gl_WorkGroupSize.x) {
    precise float y = args.keys.v[first + i] * shrink * scale * args.norm.v[i];
    kv_store(cache, to + i, y);
  }
  for (uint pair = thread_id(); pair < kRotary / 2; pair += gl_WorkGroupSize.x) {
    const uvec2 at = RANK + places_of(pair);
    const vec2 y = rotated(vec2(args.keys.v[first + at.x], args.keys.v[first + at.y]), pair);
    kv_store(cache, to + at.x, y.x);
    kv_store(cache, to + at.y, y.y);
  }
}

void prepare_query(uint head) {
  const uint n = row * args.num_heads + head;
  const uint from = n * args.head_dim + args.head_dim - kRotary;
  for (uint pair = thread_id(); pair < kRotary / 2; pair += gl_WorkGroupSize.x) {
    const uvec2 at = places_of(pair);
    precise vec2 y =
        rotated(vec2(args.q.v[from + at.x], args.q.v[from + at.y]), pair) * args.scale;
    args.latent.v[n * HEAD_DIM + RANK + at.x] = y.x;
    args.latent.v[n * HEAD_DIM + RANK + at.y] = y.y;
  }
}

void main() {
  row = gl_WorkGroupID.y;
  place = args.rows.v[row];
  if (place.live == 0) return;
  if (gl_WorkGroupID.x == args.num_heads) {
    prepare_key();
  } else {
    prepare_query(gl_WorkGroupID.x);
  }
}
