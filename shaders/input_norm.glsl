// The RMSNorm of a row of inputs, x * factor / sqrt(mean(x^2) + eps), taken by each work group for
// itself while it keeps the row.
#include "shaders/input_row.glsl"

shared float subgroup_values[128];

// Loops before what a subgroup forms together have as many turns in all lanes, so that these meet
// again.

// Over the work group, at all threads; the order depends on its size and the device alone.
float group_sum(float value) {
  const float part = subgroupAdd(value);
  if (subgroupElect()) subgroup_values[gl_SubgroupID] = part;
  barrier();
  float sum = 0;
  for (uint first = 0; first < gl_NumSubgroups; first += gl_SubgroupSize) {
    const uint i = first + gl_SubgroupInvocationID;
    sum += i < gl_NumSubgroups ? subgroup_values[i] : 0.0;
  }
  return subgroupAdd(sum);
}
float group_max(float value) {
  const float part = subgroupMax(value);
  if (subgroupElect()) subgroup_values[gl_SubgroupID] = part;
  barrier();
  float most = 0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) most = max(most, subgroup_values[i]);
  return most;
}

float square_sum(InputRow from) {
  float sum = 0;
  for (uint first = 0; first < CHUNKS * VECTORS; first += gl_WorkGroupSize.x) {
    const uint v = first + thread_index();
    if (v >= CHUNKS * VECTORS) continue;
    const vec4 four = read_handed_vector(from.x, 4 * v) * from.before;
    sum += dot(four, four);
  }
  return sum;
}

// Squares that overflow: the same of x less its largest magnitude's power.
void norm_wide(inout InputRow from) {
  float most = 0;
  for (uint first = 0; first < CHUNKS * VECTORS; first += gl_WorkGroupSize.x) {
    const uint v = first + thread_index();
    if (v >= CHUNKS * VECTORS) continue;
    const vec4 four = abs(read_handed_vector(from.x, 4 * v));
    most = max(most, max(max(four.x, four.y), max(four.z, four.w)));
  }
  barrier();
  most = group_max(most);
  if (isinf(most) || isnan(most)) return;
  from.before = 1.0 / most;
  barrier();
  from.after = 1.0 / sqrt(group_sum(square_sum(from)) / float(COLS));
  barrier();
  keep_row(0, from);
  barrier();
}

// Keeps the row as row 0: this thread's part of it, with its sum of squares where HAS_NORM asks for
// it. end_normed() follows.
float begin_normed(InputRow from) {
  float squares = 0;
  if (HAS_NORM == 0 && IS_INPUT_SHARED == 0) return squares;
  for (uint first = 0; first < CHUNKS * VECTORS; first += gl_WorkGroupSize.x) {
    const uint v = first + thread_index();
    if (v >= CHUNKS * VECTORS) continue;
    const vec4 four = read_handed_vector(from.x, 4 * v);
    squares += dot(four, four);
    if (IS_INPUT_SHARED == 0) continue;
    keep_vector(0, v, HAS_NORM != 0 ? four * read_vector(from.factor, 4 * v) : four);
  }
  return squares;
}

// The rest of keeping a row, with a barrier: what all the threads need to know of it.
void end_normed(inout InputRow from, float squares, float eps) {
  from.before = 1;
  from.after = 1;
  if (HAS_NORM == 0) {
    barrier();
    return;
  }
  const float sum = group_sum(squares);
  from.after = 1.0 / sqrt(sum / float(COLS) + eps);
  if (isinf(sum)) norm_wide(from);
}

// Both, where nothing else is to be done between them.
void keep_normed(inout InputRow from, float eps) { end_normed(from, begin_normed(from), eps); }
