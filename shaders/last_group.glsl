// Which work group is the last of some to be done: what would be a dispatch with a barrier.
#ifndef MOEPACK_SHADERS_LAST_GROUP_GLSL
#define MOEPACK_SHADERS_LAST_GROUP_GLSL

shared uint arrived_before;

// Whether this work group is the last of `count` that count up arrived.v[at]; what the others wrote
// through coherent buffers is then seen. All threads call it. The counter is 0 again afterwards.
// The threads' writes reach the first of them, which alone makes them known beyond the work group:
// a barrier of the device at each thread would cost as many waits.
bool is_last_group(Words arrived, uint at, uint count) {
  groupMemoryBarrier();
  barrier();
  if (gl_LocalInvocationID.x == 0) {
    memoryBarrierBuffer();
    arrived_before = atomicAdd(arrived.v[at], 1);
#ifndef ORDERED  // where loads of coherent buffers behind a barrier() come behind it (stage_order.glsl)
    memoryBarrierBuffer();
#endif
  }
  barrier();
  if (arrived_before + 1 != count) return false;
  groupMemoryBarrier();
  if (gl_LocalInvocationID.x == 0) arrived.v[at] = 0;
  return true;
}

#endif
