// Sums of compressed rows through the value rows of their heads (latent_args.h). Some threads share a
// row, each with some of the columns between two barriers; their sums are added in order.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"

layout(local_size_x_id = 0) in;

#include "shaders/latent_head.glsl"

const uint kRows = MOE_LATENT_ROWS;
const uint kSlots = kStaged / kRows;  // columns of a step, in the order of chunks
const uint kChunks = kSlots / CHUNK;
const uint kThreadChunks = (kRows * kChunks + kThreads - 1) / kThreads;
const uint kShares = kThreads / kRows;
const uint kShareSlots = kSlots / kShares;
shared vec4 inputs[kSlots * kFours];  // [slot][token]
shared vec4 shares[kThreads];

uint first_row() { return gl_WorkGroupID.x * kRows; }

// Threads side by side have rows side by side, whose weights of a column are in different banks.
uint slot_at(uint r, uint slot) { return r * kSlots + (slot ^ (r % 32)); }

void load_columns(uint first, out Chunk chunks[kThreadChunks]) {
  [[unroll]] for (uint n = 0; n < kThreadChunks; ++n) {
    const uint unit = thread_id() + n * kThreads;
    chunks[n] = load_chunk(head_row(first_row() + unit / kChunks),
                           min(first + unit % kChunks, CHUNKS - 1));
  }
}

void stage(uint first, Chunk chunks[kThreadChunks]) {
  [[unroll]] for (uint n = 0; n < kThreadChunks; ++n) {
    const uint unit = thread_id() + n * kThreads;
    const uint r = unit / kChunks;
    if (r < kRows) {
      const float w[CHUNK] = decoded(chunks[n], first + unit % kChunks < CHUNKS);
      [[unroll]] for (uint i = 0; i < CHUNK; ++i) {
        staged[slot_at(r, unit % kChunks * CHUNK + i)] = w[i];
      }
    }
  }
  for (uint i = thread_id(); i < kSlots * TOKENS; i += kThreads) {
    const uint slot = first * CHUNK + i % kSlots;
    const uint column = column_of(slot);
    const uint t = i / kSlots;
    const bool is_inside = slot / CHUNK < CHUNKS && column < COLS;
    inputs[i % kSlots * kFours + t / 4][t % 4] = is_inside ? input_at(t, column) : 0.0;
  }
}

void main() {
#if HAS_TABLES
  fill_tables(args.tables, thread_id(), kThreads);
  barrier();
#endif
  const uint r = thread_id() % kRows;
  const uint share = thread_id() / kRows;
  vec4 sums[kFours];
  [[unroll]] for (uint t = 0; t < kFours; ++t) sums[t] = vec4(0.0);
  Chunk chunks[kThreadChunks];
  load_columns(0, chunks);
  for (uint first = 0; first < CHUNKS; first += kChunks) {
    barrier();
    stage(first, chunks);
    barrier();
    if (first + kChunks < CHUNKS) load_columns(first + kChunks, chunks);
    for (uint i = 0; i < kShareSlots; ++i) {
      const uint slot = share * kShareSlots + i;
      const float w = staged[slot_at(r, slot)];
      [[unroll]] for (uint t = 0; t < kFours; ++t) {
        sums[t] = fma(vec4(w), inputs[slot * kFours + t], sums[t]);
      }
    }
  }
  [[unroll]] for (uint t = 0; t < kFours; ++t) {
    barrier();
    shares[thread_id()] = sums[t];
    barrier();
    if (share == 0 && first_row() + r < args.rows) {
      precise vec4 sum = shares[r];
      [[unroll]] for (uint s = 1; s < kShares; ++s) sum = sum + shares[s * kRows + r];
      [[unroll]] for (uint i = 0; i < 4; ++i) put(4 * t + i, first_row() + r, sum[i]);
    }
  }
}
