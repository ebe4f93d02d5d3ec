// Products of all rows of a matrix with one row of inputs, which the teams of all work groups take in
// turns. Whoever includes this has
//   float keep_inputs()                                          what products are multiplied by
//   void find_rows(uint first, out RowRef rows[DOTS])            rows from `first` on
//   void begin_rows(uint first, uint lane)                       what store_rows() will need of them
//   void store_rows(uint first, float sums[DOTS], uint lane)     lane r % lanes of a team has row r
#ifndef MOEPACK_SHADERS_FIXED_TURNS_GLSL
#define MOEPACK_SHADERS_FIXED_TURNS_GLSL

#include "shaders/fixed_dots.glsl"

float keep_inputs();
#ifdef KEEPS_INPUTS_FIRST
float kept_after;  // what keep_inputs() gave, before take_turns()
#endif
void find_rows(uint first, out RowRef rows[DOTS]);
void begin_rows(uint first, uint lane);
void store_rows(uint first, float sums[DOTS], uint lane);

uint team_lanes() { return min(LANES, gl_SubgroupSize); }
// Rows that a work group takes together.
uint rows_at_once() { return gl_WorkGroupSize.x / team_lanes() * ROWS; }

void load_steps(uint first, uint chunk, uint lanes, out Chunk w[STEPS][DOTS]) {
  RowRef rows[DOTS];
  find_rows(first, rows);
  [[unroll]] for (uint step = 0; step < STEPS; ++step) {
    [[unroll]] for (uint r = 0; r < DOTS; ++r) {
      w[step][r] = load_chunk(rows[r], min(chunk + step * lanes, CHUNKS - 1));
    }
  }
}

// Rows [first, count), of which the work group takes rows_at_once() in turns of `stride`; the first
// weights are on their way while the inputs are kept. There is one copy of the code for all turns: a
// program that runs once waits for its own bytes. All threads take as many turns, since there is a
// barrier in the first.
void take_turns(uint first, uint count, uint stride) {
  const uint lanes = team_lanes();
  const uint lane = gl_SubgroupInvocationID % lanes;
  const uint of_team = thread_index() / lanes * ROWS;
  uint chunk = lane;
#ifdef KEEPS_INPUTS_FIRST
  bool is_kept = true;
  float after = kept_after;
#else
  bool is_kept = false;
  float after;
#endif
  float sums[DOTS];
  [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] = 0;
  [[dont_unroll]] do {
    Chunk w[STEPS][DOTS];
    load_steps(first + of_team, chunk, lanes, w);
    if (chunk == lane) begin_rows(first + of_team, lane);
    if (!is_kept) after = keep_inputs();
    is_kept = true;
    [[unroll]] for (uint step = 0; step < STEPS; ++step) {
      if (chunk + step * lanes < CHUNKS) add_chunk(w[step], chunk + step * lanes, sums);
    }
    chunk += STEPS * lanes;
    if (chunk - lane >= CHUNKS) {
      [[unroll]] for (uint r = 0; r < DOTS; ++r) {
        [[dont_unroll]] for (uint other = 1; other < lanes; other *= 2) {
          sums[r] += subgroupShuffleXor(sums[r], other);
        }
        sums[r] *= after;
      }
      store_rows(first + of_team, sums, lane);
      [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] = 0;
      first += stride;
      chunk = lane;
    }
  } while (first < count);
}

#endif
