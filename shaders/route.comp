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

shared float probabilities[EXPERTS];
shared float partial_tops[128];
shared Choice chosen[TOP_K];

uint row;

float group_top(float x) {
  const float part = subgroupMax(x);
  if (subgroupElect()) partial_tops[gl_SubgroupID] = part;
  barrier();
  float top = partial_tops[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) top = max(top, partial_tops[i]);
  return top;
}

// Experts that come before e: the more probable ones, of equal ones those with lower numbers.
uint rank_of(uint e) {
  const float mine = probabilities[e];
  uint rank = 0;
  for (uint other = 0; other < EXPERTS; ++other) {
    const float p = probabilities[other];
    rank += p > mine || (p == mine && other < e) ? 1u : 0u;
  }
  return rank;
}

void choose() {
  float top = -3.4e38;
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    top = max(top, args.logits.v[row * args.logits_stride + e]);
  }
  top = group_top(top);
  float sum = 0.0;
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    probabilities[e] = exact_exp(args.logits.v[row * args.logits_stride + e] - top);
    sum += probabilities[e];
  }
  const float scale = 1.0 / group_sum(sum);
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    probabilities[e] = probabilities[e] * scale;
  }
  barrier();
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    const uint rank = rank_of(e);
    if (rank < TOP_K) chosen[rank] = Choice(e, probabilities[e]);
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
  for (uint e = thread_id(); e < EXPERTS; e += gl_WorkGroupSize.x) {
    if (!is_finite(args.logits.v[row * args.logits_stride + e])) bad = 1.0;
  }
  const bool is_routed = group_sum(bad) == 0.0;
  if (is_routed) {
    choose();
  } else if (thread_id() == 0) {
    atomicMin(args.row_error.v[row], args.layer);
  }
  write_choices(is_routed, shared_logit);
}
