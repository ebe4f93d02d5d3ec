// Products of all rows of a matrix with one row of inputs, which the teams of all work groups take in
// turns. Whoever includes this has
//   float keep_inputs()                                          what products are multiplied by
//   void find_rows(uint first, out RowRef rows[DOTS])            rows from `first` on
//   void store_rows(uint first, float sums[DOTS], uint lane)     lane r % lanes of a team has row r
#ifndef MOEPACK_SHADERS_FIXED_TURNS_GLSL
#define MOEPACK_SHADERS_FIXED_TURNS_GLSL

#include "shaders/fixed_dots.glsl"

float keep_inputs();
void find_rows(uint first, out RowRef rows[DOTS]);
void store_rows(uint first, float sums[DOTS], uint lane);

uint team_lanes() { return min(LANES, gl_SubgroupSize); }
// Rows that a work group takes together.
uint rows_at_once() { return gl_WorkGroupSize.x / team_lanes() * ROWS; }

// Rows [first, count), of which the work groups take rows_at_once() in turns of `step`.
void take_turns(uint first, uint count, uint step) {
  const uint lanes = team_lanes();
  const uint lane = gl_SubgroupInvocationID % lanes;
  first += thread_index() / lanes * ROWS;
  // The first weights are on their way while the inputs are kept.
  bool is_kept = false;
  float after = 1;
  [[dont_unroll]] do {
    RowRef rows[DOTS];
    find_rows(first, rows);
    float sums[DOTS];
    [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] = 0;
    uint chunk = lane;
    [[dont_unroll]] do {
      Chunk w[STEPS][DOTS];
      [[unroll]] for (uint step = 0; step < STEPS; ++step) {
        [[unroll]] for (uint r = 0; r < DOTS; ++r) {
          w[step][r] = load_chunk(rows[r], min(chunk + step * lanes, CHUNKS - 1));
        }
      }
      if (!is_kept) {
        after = keep_inputs();
        is_kept = true;
      }
      [[unroll]] for (uint step = 0; step < STEPS; ++step) {
        if (chunk < CHUNKS) add_chunk(w[step], chunk, sums);
        chunk += lanes;
      }
    } while (chunk < CHUNKS);
    [[unroll]] for (uint r = 0; r < DOTS; ++r) {
      [[dont_unroll]] for (uint other = 1; other < lanes; other *= 2) {
        sums[r] += subgroupShuffleXor(sums[r], other);
      }
      sums[r] *= after;
    }
    store_rows(first, sums, lane);
    first += step;
  } while (first < count);
}

#endif
