// Sums over a work group or over eight lanes, each in an order that depends on nothing but the
// device and the size of the work group. Needs whole subgroups of at least eight.
#ifndef MOEPACK_SHADERS_REDUCE_GLSL
#define MOEPACK_SHADERS_REDUCE_GLSL

// Number of this thread in the work group: those of a subgroup follow each other.
uint thread_id() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

// Squares of values beyond float32's range are formed of the values times this.
const float kShrink = 8.470329472543003e-22;  // 2^-70

// Over the eight lanes around this one, the same bits in each.
float lanes8_sum(float x) {
  precise float sum = x;
  sum = sum + subgroupShuffleXor(sum, 1);
  sum = sum + subgroupShuffleXor(sum, 2);
  sum = sum + subgroupShuffleXor(sum, 4);
  return sum;
}

shared float group_partials[128];  // of the most subgroups that a work group has

// Over all threads of the work group, the same bits in each. A barrier: all must call it.
float group_sum(float x) {
  const float part = subgroupAdd(x);
  if (subgroupElect()) group_partials[gl_SubgroupID] = part;
  barrier();
  precise float sum = group_partials[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) sum = sum + group_partials[i];
  barrier();
  return sum;
}

// The largest; of NaN alone whatever max gives. All must call it.
float group_top(float x) {
  const float part = subgroupMax(x);
  if (subgroupElect()) group_partials[gl_SubgroupID] = part;
  barrier();
  float top = group_partials[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) top = max(top, group_partials[i]);
  barrier();
  return top;
}

#endif
