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

// Above every finite logit.
float infinity() { return uintBitsToFloat(0x7f800000u); }
// Experts of a lane of the smallest subgroup: the choice is made by one subgroup, from registers.
const uint kLaneExperts = (EXPERTS + 7) / 8;
shared float weights_of_all[EXPERTS];  // logits, then e^(logit - top)
shared Choice chosen[TOP_K];
shared float route_partials[128];

uint route_thread() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

// The largest of the work group, the same in all threads.
float route_top(float x) {
  const float part = subgroupMax(x);
  if (subgroupElect()) route_partials[gl_SubgroupID] = part;
  barrier();
  float top = -infinity();
  // As many turns in all lanes, which meet again in the largest of all.
  for (uint first = 0; first < gl_NumSubgroups; first += gl_SubgroupSize) {
    const uint i = first + gl_SubgroupInvocationID;
    top = max(top, i < gl_NumSubgroups ? route_partials[i] : -infinity());
  }
  return subgroupMax(top);
}

// The most probable experts in order, of equal ones those with lower numbers first; the sum of their
// probabilities. By one subgroup, whose lanes have experts side by side. Probabilities are not
// negative, so that their bits as integers order them.
float choose(uint count) {
  const uint lane = gl_SubgroupInvocationID;
  const uint share = (EXPERTS + gl_SubgroupSize - 1) / gl_SubgroupSize;
  float p[kLaneExperts];
  float sum = 0.0;
  [[unroll]] for (uint n = 0; n < kLaneExperts; ++n) {
    const uint e = lane * share + n;
    p[n] = n < share && e < EXPERTS ? weights_of_all[e] : -1.0;
    sum += max(p[n], 0.0);
  }
  const float scale = 1.0 / subgroupAdd(sum);
  [[unroll]] for (uint n = 0; n < kLaneExperts; ++n) p[n] *= scale;
  float total = 0.0;
  [[dont_unroll]] for (uint k = 0; k < count; ++k) {
    int best = floatBitsToInt(p[0]);
    uint at = 0;
    [[unroll]] for (uint n = 1; n < kLaneExperts; ++n) {
      const bool is_better = floatBitsToInt(p[n]) > best;
      best = is_better ? floatBitsToInt(p[n]) : best;
      at = is_better ? n : at;
    }
    const int most = subgroupMax(best);
    const uint owner = subgroupBallotFindLSB(subgroupBallot(best == most));
    if (lane == owner) chosen[k] = Choice(lane * share + at, intBitsToFloat(most));
    [[unroll]] for (uint n = 0; n < kLaneExperts; ++n) {
      p[n] = lane == owner && n == at ? -1.0 : p[n];
    }
    total += intBitsToFloat(most);
  }
  subgroupMemoryBarrierShared();
  subgroupBarrier();
  return total;
}

// All threads of the work group call it. `is_live`: what the row's place in the batch says.
void route_row(RouteArgs args, uint row, bool is_live) {
  float shared_logit = 0.0;
  if (args.has_shared != 0) {
    shared_logit = SharedF32(args.shared_logits).v[row * args.shared_stride];
  }
  float top = is_finite(shared_logit) ? -infinity() : infinity();
  for (uint e = route_thread(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const float logit = SharedF32(args.logits).v[row * args.logits_stride + e];
    top = max(top, is_finite(logit) ? logit : infinity());
    weights_of_all[e] = logit;
  }
  top = route_top(top);
  const bool is_routed = is_live && is_finite(top);
  for (uint e = route_thread(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    weights_of_all[e] = exact_exp(weights_of_all[e] - top);
  }
  barrier();
  if (gl_SubgroupID != 0) return;
  const float total = choose(is_routed ? TOP_K : 0);
  const float divisor = args.renormalise != 0 ? total : 1.0;
  const uint slots = TOP_K + args.has_shared;
  for (uint i = gl_SubgroupInvocationID; i < slots; i += gl_SubgroupSize) {
    Choice choice = Choice(MOE_NO_EXPERT, 0.0);
    if (is_routed) {
      choice = i < TOP_K ? Choice(chosen[i].expert, chosen[i].weight / divisor)
                         : Choice(EXPERTS, sigmoid(shared_logit));
    }
    args.choices.v[row * slots + i] = choice;
  }
  if (is_live && !is_routed && subgroupElect()) atomicMin(args.row_error.v[row], args.layer);
}

#endif
