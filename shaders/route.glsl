// Softmax over the experts of a row and the most probable of them (route_args.h), by one work group.
// Whoever includes this has EXPERTS and TOP_K.
#ifndef MOEPACK_SHADERS_ROUTE_GLSL
#define MOEPACK_SHADERS_ROUTE_GLSL

#include "shaders/elementary.glsl"
#include "shaders/route_args.h"

// Logits may come from other work groups of the same dispatch.
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer SharedF32 {
  float v[];
};

// In vectors, which are read at once; behind the last expert values below every other.
const uint kVectors = (EXPERTS + 3) / 4;
shared vec4 probabilities[kVectors];
shared Choice chosen[TOP_K];
shared float route_partials[128];

uint route_thread() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

// Over the work group, in order; the same in all threads.
float route_sum(float x) {
  const float part = subgroupAdd(x);
  if (subgroupElect()) route_partials[gl_SubgroupID] = part;
  barrier();
  precise float sum = route_partials[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) sum = sum + route_partials[i];
  barrier();
  return sum;
}

float route_top(float x) {
  const float part = subgroupMax(x);
  if (subgroupElect()) route_partials[gl_SubgroupID] = part;
  barrier();
  float top = route_partials[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) top = max(top, route_partials[i]);
  barrier();
  return top;
}

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
  for (uint e = route_thread(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const float p = exact_exp(probabilities[e / 4][e % 4] - top);
    probabilities[e / 4][e % 4] = p;
    sum += p;
  }
  const float scale = 1.0 / route_sum(sum);
  for (uint e = route_thread(); e < 4 * kVectors; e += gl_WorkGroupSize.x) {
    const float p = e < EXPERTS ? probabilities[e / 4][e % 4] * scale : -1.0;
    probabilities[e / 4][e % 4] = p;
  }
  barrier();
  for (uint e = route_thread(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const uint rank = rank_of(e);
    if (rank < TOP_K) chosen[rank] = Choice(e, probabilities[e / 4][e % 4]);
  }
  barrier();
}

void write_choices(RouteArgs args, uint row, bool is_routed, float shared_logit) {
  const uint slots = TOP_K + args.has_shared;
  float sum = 1.0;
  if (is_routed && args.renormalise != 0) {
    sum = 0.0;
    for (uint i = 0; i < TOP_K; ++i) sum += chosen[i].weight;
  }
  for (uint i = route_thread(); i < slots; i += gl_WorkGroupSize.x) {
    Choice choice = Choice(MOE_NO_EXPERT, 0.0);
    if (is_routed && i < TOP_K) choice = Choice(chosen[i].expert, chosen[i].weight / sum);
    if (is_routed && i == TOP_K) choice = Choice(EXPERTS, sigmoid(shared_logit));
    args.choices.v[row * slots + i] = choice;
  }
}

// All threads of the work group call it.
void route_row(RouteArgs args, uint row) {
  if (args.rows.v[row].live == 0) {
    write_choices(args, row, false, 0.0);
    return;
  }
  const float shared_logit =
      args.has_shared != 0 ? SharedF32(args.shared_logits).v[row * args.shared_stride] : 0.0;
  float bad = is_finite(shared_logit) ? 0.0 : 1.0;
  float top = -3.4e38;
  for (uint e = route_thread(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const float logit = SharedF32(args.logits).v[row * args.logits_stride + e];
    if (!is_finite(logit)) bad = 1.0;
    top = max(top, logit);
    probabilities[e / 4][e % 4] = logit;
  }
  top = route_top(top);
  const bool is_routed = route_sum(bad) == 0.0;
  if (is_routed) {
    choose(top);
  } else if (route_thread() == 0) {
    atomicMin(args.row_error.v[row], args.layer);
  }
  write_choices(args, row, is_routed, shared_logit);
}

#endif
