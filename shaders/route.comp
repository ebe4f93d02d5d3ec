// Softmax over the experts of a row and the most probable of them (route_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/route_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EXPERTS = 256;
layout(constant_id = 2) const uint TOP_K = 8;
layout(push_constant, scalar) uniform Push { RouteArgs args; };

// In vectors, which are read at once; behind the last expert values below every other.
const uint kVectors = (EXPERTS + 3) / 4;
shared vec4 probabilities[kVectors];
shared Choice chosen[TOP_K];

uint row;

// Experts that come before e: the more probable ones, of equal ones those with lower numbers.
uint rank_of(uint e) {
  const float mine = probabilities[e / 4][e % 4];
  uvec4 ranks = uvec4(0);
  for (uint i = 0; i < kVectors; ++i) {
    const vec4 p = probabilities[i];
    const bvec4 is_lower = lessThan(4 * i + uvec4(0, 1, 2, 3), uvec4(e));
    const bvec4 is_more = greaterThan(p, vec4(mine));
    const bvec4 is_equal = equal(p, vec4(mine));
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      ranks[c] += is_more[c] || (is_equal[c] && is_lower[c]) ? 1u : 0u;
    }
  }
  return ranks.x + ranks.y + ranks.z + ranks.w;
}

// probabilities holds finite logits, `top` is the largest.
void choose(float top) {
  float sum = 0.0;
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const float p = exact_exp(probabilities[e / 4][e % 4] - top);
    probabilities[e / 4][e % 4] = p;
    sum += p;
  }
  const float scale = 1.0 / group_sum(sum);
  for (uint e = thread_id(); e < 4 * kVectors; e += gl_WorkGroupSize.x) {
    const float p = e < EXPERTS ? probabilities[e / 4][e % 4] * scale : -1.0;
    probabilities[e / 4][e % 4] = p;
  }
  barrier();
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const uint rank = rank_of(e);
    if (rank < TOP_K) chosen[rank] = Choice(e, probabilities[e / 4][e % 4]);
  }
  barrier();
}

void write_choices(bool is_routed, float shared_logit) {
  const uint slots = TOP_K + args.has_shared;
  float sum = 1.0;
  if (is_routed && args.renormalise != 0) {
    sum = 0.0;
    for (uint i = 0; i < TOP_K; ++i) sum += chosen[i].weight;
  }
  for (uint i = thread_id(); i < slots; i += gl_WorkGroupSize.x) {
    Choice choice = Choice(MOE_NO_EXPERT, 0.0);
    if (is_routed && i < TOP_K) choice = Choice(chosen[i].expert, chosen[i].weight / sum);
    if (is_routed && i == TOP_K) choice = Choice(EXPERTS, sigmoid(shared_logit));
    args.choices.v[row * slots + i] = choice;
  }
}

void main() {
  row = gl_WorkGroupID.x;
  if (args.rows.v[row].live == 0) {
    write_choices(false, 0.0);
    return;
  }
  const float shared_logit =
      args.has_shared != 0 ? args.shared_logits.v[row * args.shared_stride] : 0.0;
  float bad = is_finite(shared_logit) ? 0.0 : 1.0;
  float top = -3.4e38;
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const float logit = args.logits.v[row * args.logits_stride + e];
    if (!is_finite(logit)) bad = 1.0;
    top = max(top, logit);
    probabilities[e / 4][e % 4] = logit;
  }
  top = group_top(top);
  const bool is_routed = group_sum(bad) == 0.0;
  if (is_routed) {
    choose(top);
  } else if (thread_id() == 0) {
    atomicMin(args.row_error.v[row], args.layer);
  }
  write_choices(is_routed, shared_logit);
}
