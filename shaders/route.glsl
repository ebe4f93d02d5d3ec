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

// In vectors, which are read four at a time; behind the last expert values below every other.
const uint kVectors = (EXPERTS + 15) / 16 * 4;
// Above every finite logit.
float infinity() { return uintBitsToFloat(0x7f800000u); }
shared vec4 probabilities[kVectors];
shared Choice chosen[TOP_K];
shared float route_partials[128];

uint route_thread() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

// Over the work group, the same in all threads.
float route_sum(float x) {
  const float part = subgroupAdd(x);
  if (subgroupElect()) route_partials[gl_SubgroupID] = part;
  barrier();
  float sum = 0.0;
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
    sum += route_partials[i];
  }
  sum = subgroupAdd(sum);
  barrier();
  return sum;
}

float route_top(float x) {
  const float part = subgroupMax(x);
  if (subgroupElect()) route_partials[gl_SubgroupID] = part;
  barrier();
  float top = -infinity();
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
    top = max(top, route_partials[i]);
  }
  top = subgroupMax(top);
  barrier();
  return top;
}

// Experts that come before e: the more probable ones, of equal ones those with lower numbers.
// Probabilities are not negative, so that their bits as integers order them.
uint rank_of(uint e) {
  const ivec4 own = floatBitsToInt(probabilities[e / 4]);
  const int mine = own[e % 4];
  uvec4 ranks = uvec4(0);
  // A few vectors at a time: their loads overlap, and the program stays short.
  [[dont_unroll]] for (uint first = 0; first < kVectors; first += 4) {
    [[unroll]] for (uint i = first; i < first + 4; ++i) {
      const ivec4 p = floatBitsToInt(probabilities[i]);
      const int least = i < e / 4 ? mine : mine + 1;
      [[unroll]] for (uint c = 0; c < 4; ++c) ranks[c] += p[c] >= least ? 1u : 0u;
    }
  }
  uint rank = ranks.x + ranks.y + ranks.z + ranks.w;
  for (uint c = 0; c < e % 4; ++c) rank += own[c] == mine ? 1u : 0u;
  return rank;
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

// All threads of the work group call it. `is_live`: what the row's place in the batch says.
void route_row(RouteArgs args, uint row, bool is_live) {
  if (!is_live) {
    write_choices(args, row, false, 0.0);
    return;
  }
  const float shared_logit =
      args.has_shared != 0 ? SharedF32(args.shared_logits).v[row * args.shared_stride] : 0.0;
  float top = is_finite(shared_logit) ? -infinity() : infinity();
  for (uint e = route_thread(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const float logit = SharedF32(args.logits).v[row * args.logits_stride + e];
    top = max(top, is_finite(logit) ? logit : infinity());
    probabilities[e / 4][e % 4] = logit;
  }
  top = route_top(top);
  const bool is_routed = is_finite(top);
  if (is_routed) {
    choose(top);
  } else if (route_thread() == 0) {
    atomicMin(args.row_error.v[row], args.layer);
  }
  write_choices(args, row, is_routed, shared_logit);
}

#endif
