// The plain part of queries through the key rows of their heads (latent_args.h). Rows are summed in
// order; a thread has one column for all tokens of the work group.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"

layout(local_size_x_id = 0) in;

#include "shaders/latent_head.glsl"

const uint kSlots = kThreads;  // columns, in the order of chunks
const uint kRows = kStaged / kSlots;
const uint kChunks = kSlots / CHUNK;  // of a row
const uint kThreadChunks = (kRows * kChunks + kThreads - 1) / kThreads;
shared vec4 inputs[kRows * kFours];  // [row][token]

uint first_chunk() { return gl_WorkGroupID.x * kChunks; }

// Where a weight lies: those that threads side by side write, and read, are in different banks.
uint slot_at(uint r, uint chunk, uint i) {
  const uint turn = (r * kChunks + chunk) % min(CHUNK, 32);
  return r * kSlots + chunk * CHUNK + (i ^ turn);
}

void load_rows(uint first, out Chunk chunks[kThreadChunks]) {
  [[unroll]] for (uint n = 0; n < kThreadChunks; ++n) {
    const uint unit = thread_id() + n * kThreads;
    chunks[n] = load_chunk(head_row(first + unit / kChunks),
                           min(first_chunk() + unit % kChunks, CHUNKS - 1));
  }
}

void stage(uint first, Chunk chunks[kThreadChunks]) {
  [[unroll]] for (uint n = 0; n < kThreadChunks; ++n) {
    const uint unit = thread_id() + n * kThreads;
    const uint r = unit / kChunks;
    if (r < kRows) {
      const float w[CHUNK] = decoded(chunks[n], first + r < args.rows);
      [[unroll]] for (uint i = 0; i < CHUNK; ++i) staged[slot_at(r, unit % kChunks, i)] = w[i];
    }
  }
  for (uint i = thread_id(); i < kRows * TOKENS; i += kThreads) {
    const uint r = i % kRows;
    const uint t = i / kRows;
    precise float x = first + r < args.rows ? input_at(t, first + r) * args.scale : 0.0;
    inputs[r * kFours + t / 4][t % 4] = x;
  }
}

void main() {
#if HAS_TABLES
  fill_tables(args.tables, thread_id(), kThreads);
  barrier();
#endif
  vec4 sums[kFours];
  [[unroll]] for (uint t = 0; t < kFours; ++t) sums[t] = vec4(0.0);
  Chunk chunks[kThreadChunks];
  load_rows(0, chunks);
  for (uint first = 0; first < args.rows; first += kRows) {
    barrier();
    stage(first, chunks);
    barrier();
    if (first + kRows < args.rows) load_rows(first + kRows, chunks);
    for (uint r = 0; r < kRows; ++r) {
      const float w = staged[slot_at(r, thread_id() / CHUNK, thread_id() % CHUNK)];
      [[unroll]] for (uint t = 0; t < kFours; ++t) {
        sums[t] = fma(vec4(w), inputs[r * kFours + t], sums[t]);
      }
    }
  }
  const uint slot = first_chunk() * CHUNK + thread_id();
  const uint column = column_of(slot);
  if (slot / CHUNK >= CHUNKS || column >= COLS) return;
  [[unroll]] for (uint t = 0; t < TOKENS; ++t) put(t, column, sums[t / 4][t % 4]);
}
