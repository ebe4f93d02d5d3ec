// Softmax or sigmoids of the experts of a row and the best of them (route_args.h), by one work group.
// Whoever includes this has EXPERTS, TOP_K and the constants ROUTER_… and SHARED_GATE.
#ifndef MOEPACK_SHADERS_ROUTE_GLSL
#define MOEPACK_SHADERS_ROUTE_GLSL

#include "shaders/elementary.glsl"
#include "shaders/route_args.h"

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer RouteOfLayer { RouteArgs v[]; };

// Above every finite logit.
float infinity() { return uintBitsToFloat(0x7f800000u); }
// Experts of a lane of the smallest subgroup: the choice is made by one subgroup, from registers.
const uint kLaneExperts = (EXPERTS + ROUTER_LANES - 1) / ROUTER_LANES;
shared float weights_of_all[EXPERTS];  // logits, then e^(logit - top), or scores
shared Choice chosen[TOP_K];
shared float route_partials[128];
shared float group_scores[ROUTER_GROUPS];
shared uint is_kept_group[ROUTER_GROUPS];

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

// Integers in the order of floats, of which none is NaN.
int order_of(float x) {
  const int bits = floatBitsToInt(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// The sum of the two highest scores of a group.
float group_score(uint group) {
  const uint size = EXPERTS / ROUTER_GROUPS;
  float first = -infinity();
  float second = -infinity();
  [[dont_unroll]] for (uint i = 0; i < size; ++i) {
    const float score = weights_of_all[group * size + i];
    second = max(second, min(first, score));
    first = max(first, score);
  }
  return size < 2 ? first : first + second;
}

// Which groups are among the best: fewer than ROUTER_KEPT are better, or equal and before it.
void keep_groups() {
  const uint lane = gl_SubgroupInvocationID;
  [[dont_unroll]] for (uint first = 0; first < ROUTER_GROUPS; first += gl_SubgroupSize) {
    if (first + lane < ROUTER_GROUPS) group_scores[first + lane] = group_score(first + lane);
  }
  subgroupMemoryBarrierShared();
  subgroupBarrier();
  [[dont_unroll]] for (uint first = 0; first < ROUTER_GROUPS; first += gl_SubgroupSize) {
    const uint group = first + lane;
    if (group >= ROUTER_GROUPS) continue;
    uint better = 0;
    [[dont_unroll]] for (uint g = 0; g < ROUTER_GROUPS; ++g) {
      const bool is_better = group_scores[g] > group_scores[group];
      better += is_better || (group_scores[g] == group_scores[group] && g < group) ? 1 : 0;
    }
    is_kept_group[group] = better < ROUTER_KEPT ? 1 : 0;
  }
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

// As choose(), by scores that may be negative: sigmoids and what corrects them. Weights are the
// sigmoids alone.
float choose_scores(RouteArgs args, uint row, uint count) {
  if (ROUTER_KEPT < ROUTER_GROUPS) keep_groups();
  const int kNone = int(0x80000000u);
  const uint lane = gl_SubgroupInvocationID;
  const uint share = (EXPERTS + gl_SubgroupSize - 1) / gl_SubgroupSize;
  int p[kLaneExperts];
  [[unroll]] for (uint n = 0; n < kLaneExperts; ++n) {
    const uint e = lane * share + n;
    p[n] = kNone;
    if (n < share && e < EXPERTS) {
      float score = weights_of_all[e];
      if (ROUTER_KEPT < ROUTER_GROUPS && is_kept_group[e / (EXPERTS / ROUTER_GROUPS)] == 0) {
        score = -infinity();
      }
      p[n] = order_of(score);
    }
  }
  [[dont_unroll]] for (uint k = 0; k < count; ++k) {
    int best = p[0];
    uint at = 0;
    [[unroll]] for (uint n = 1; n < kLaneExperts; ++n) {
      const bool is_better = p[n] > best;
      best = is_better ? p[n] : best;
      at = is_better ? n : at;
    }
    const int most = subgroupMax(best);
    const uint owner = subgroupBallotFindLSB(subgroupBallot(best == most));
    if (lane == owner) {
      const uint e = lane * share + at;
      chosen[k] = Choice(e, sigmoid(args.logits.v[row * args.logits_stride + e]));
    }
    [[unroll]] for (uint n = 0; n < kLaneExperts; ++n) {
      p[n] = lane == owner && n == at ? kNone : p[n];
    }
  }
  subgroupMemoryBarrierShared();
  subgroupBarrier();
  precise float total = 0.0;
  [[dont_unroll]] for (uint k = 0; k < count; ++k) total = total + chosen[k].weight;
  return total + 1e-20;
}

// The expert's score, of its logit.
float score_of(RouteArgs args, uint e, float logit) {
  precise float score = sigmoid(logit);
  if (ROUTER_BIAS != 0) score = score + args.bias.v[e];
  return score;
}

// What the expert's weight is multiplied with at last.
float expert_scale(RouteArgs args, uint e) {
  return args.bias.v[ROUTER_BIAS != 0 ? EXPERTS + e : e];
}

// What was found of a row; the experts are in chosen[].
struct RowRoute {
  bool is_routed;
  float divisor;  // of their weights
  float shared_logit;
};

// All threads of the work group call it, and the first subgroup then has the choice. `is_live`: what
// the row's place in the batch says.
RowRoute find_route(RouteArgs args, uint row, bool is_live) {
  float shared_logit = 0.0;
  if (SHARED_GATE != 0 && args.has_shared != 0) {
    TAKE_HANDED(shared_logit, args.shared_logits.v[row * args.shared_stride]);
  }
  float top = is_finite(shared_logit) ? -infinity() : infinity();
  for (uint e = route_thread(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    float logit;
    TAKE_HANDED(logit, args.logits.v[row * args.logits_stride + e]);
    if (ROUTER_BIAS != 0 && ROUTER_SIGMOIDS == 0) {
      logit += args.bias.v[e];
      args.logits.v[row * args.logits_stride + e] = logit;
    }
    top = max(top, is_finite(logit) ? logit : infinity());
    weights_of_all[e] = logit;
  }
  top = route_top(top);
  const bool is_routed = is_live && is_finite(top);
  for (uint e = route_thread(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    weights_of_all[e] = ROUTER_SIGMOIDS != 0 ? score_of(args, e, weights_of_all[e])
                                             : exact_exp(weights_of_all[e] - top);
  }
  barrier();
  float total = 1.0;
  if (gl_SubgroupID == 0) {
    const uint count = is_routed ? TOP_K : 0;
    if (ROUTER_SIGMOIDS != 0) {
      total = choose_scores(args, row, count);
    } else {
      total = choose(count);
    }
  }
  return RowRoute(is_routed, args.renormalise != 0 ? total : 1.0, shared_logit);
}

// All threads of the work group call it.
void route_row(RouteArgs args, uint row, bool is_live) {
  const RowRoute route = find_route(args, row, is_live);
  if (gl_SubgroupID != 0) return;
  const uint slots = TOP_K + args.has_shared;
  for (uint i = gl_SubgroupInvocationID; i < slots; i += gl_SubgroupSize) {
    Choice choice = Choice(MOE_NO_EXPERT, 0.0);
    if (route.is_routed) {
      choice = i < TOP_K ? Choice(chosen[i].expert, chosen[i].weight / route.divisor)
                         : Choice(EXPERTS, SHARED_GATE != 0 ? sigmoid(route.shared_logit) : 1.0);
      if (ROUTER_SIGMOIDS != 0 && i < TOP_K) choice.weight *= ROUTER_SCALE;
      if (ROUTER_EXPERT_SCALES != 0 && i < TOP_K) choice.weight *= expert_scale(args, choice.expert);
    }
    args.choices.v[row * slots + i] = choice;
  }
  if (is_live && !route.is_routed && subgroupElect()) atomicMin(args.row_error.v[row], args.layer);
}

#endif
