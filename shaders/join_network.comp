// Joins what a row's experts gave, between the norms of its layer, to the hidden state
// (join_network_args.h). A thread has the same columns from first to last.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/join_network_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { JoinNetworkArgs args; };

uint row;

// Whether a slot's result was computed here.
bool has_result(Choice choice) {
  if (choice.expert >= args.experts) return false;
  return uint64_t(args.records) == 0 || args.records.v[choice.expert] != uvec2(0);
}

float square_sum(F32 from, uint first, float factor) {
  float sum = 0.0;
  for (uint c = thread_id(); c < args.cols; c += gl_WorkGroupSize.x) {
    const float x = from.v[first + c] * factor;
    sum = fma(x, x, sum);
  }
  return group_sum(sum);
}

// What the row's values are multiplied with, one after the other: the first is 1 but for values whose
// squares are beyond float32. Without a norm both are 1.
vec2 norm_scales(F32 from, uint first, F32 factor) {
  if (uint64_t(factor) == 0) return vec2(1.0);
  const float sum = square_sum(from, first, 1.0);
  if (is_finite(sum)) return vec2(1.0, 1.0 / sqrt(sum / float(args.cols) + args.eps));
  return vec2(kShrink, 1.0 / sqrt(square_sum(from, first, kShrink) / float(args.cols)));
}

float normed(float x, vec2 scales, F32 factor, uint c) {
  if (uint64_t(factor) == 0) return x;
  precise float y = x * scales.x * scales.y * factor.v[c];
  return y;
}

float routed_sum(uint c) {
  float sum = 0.0;
  for (uint slot = 0; slot < args.routed; ++slot) {
    const Choice choice = args.choices.v[row * args.slots + slot];
    if (!has_result(choice)) continue;
    sum += choice.weight * args.results.v[(row * args.slots + slot) * args.cols + c];
  }
  if (uint64_t(args.more) != 0) sum += args.more.v[row * args.cols + c];
  return sum;
}

// work = the routed experts' branch and the shared one's.
void add_branches(uint first) {
  for (uint c = thread_id(); c < args.cols; c += gl_WorkGroupSize.x) {
    args.work.v[first + c] = routed_sum(c);
  }
  const vec2 routed = norm_scales(args.work, first, args.routed_norm);
  const uint place = row * args.slots + args.routed;
  float weight = 0.0;
  vec2 shared_scales = vec2(1.0);
  const bool has_shared = args.slots > args.routed && has_result(args.choices.v[place]);
  if (has_shared) {
    weight = args.choices.v[place].weight;
    shared_scales = norm_scales(args.results, place * args.cols, args.shared_norm);
  }
  for (uint c = thread_id(); c < args.cols; c += gl_WorkGroupSize.x) {
    float sum = normed(args.work.v[first + c], routed, args.routed_norm, c);
    if (has_shared) {
      sum += weight * normed(args.results.v[place * args.cols + c], shared_scales,
                             args.shared_norm, c);
    }
    args.work.v[first + c] = sum;
  }
}

void main() {
  row = gl_WorkGroupID.x;
  const uint first = row * args.cols;
  add_branches(first);
  const vec2 scales = norm_scales(args.work, first, args.output_norm);
  const float scale = uint64_t(args.scale) != 0 ? args.scale.v[0] : 1.0;
  for (uint c = thread_id(); c < args.cols; c += gl_WorkGroupSize.x) {
    const float sum = normed(args.work.v[first + c], scales, args.output_norm, c);
    args.y.v[first + c] = (args.y.v[first + c] + sum) * scale;
  }
}
