// Products of all rows of a matrix with one row of inputs, which the teams of all work groups take in
// turns. While a lane multiplies its chunks, those of its next step or next rows are on their way.
// Whoever includes this has
//   void find_rows(uint first, out RowRef rows[DOTS])           rows from `first` on
//   void store_rows(uint first, float sums[DOTS], Team team)    their products, known to all lanes
#ifndef MOEPACK_SHADERS_ROW_TURNS_GLSL
#define MOEPACK_SHADERS_ROW_TURNS_GLSL

#include "shaders/row_dots.glsl"

void find_rows(uint first, out RowRef rows[DOTS]);
void store_rows(uint first, float sums[DOTS], Team team);

uint first_turn(Team team) { return (gl_WorkGroupID.x * team.count + team.index) * ROWS; }

void load_turn(uint first, uint begin, Team team, out Chunk w[IN_FLIGHT]) {
  RowRef rows[DOTS];
  find_rows(first, rows);
  load_steps(rows, begin + team.lane, team, w);
}

// `w`: what load_turn() gave for first_turn(), from chunk 0 on. `count`: rows of the matrix.
void take_turns(uint count, InputRow from, Team team, Chunk w[IN_FLIGHT]) {
  uint first = first_turn(team);
  uint begin = 0;  // of the step's chunks
  float sums[DOTS];
  [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] = 0;
  while (first < count) {
    uint next = first;
    uint next_begin = begin + STEPS * team.lanes;
    const bool is_end = next_begin >= CHUNKS;
    if (is_end) {
      next += gl_NumWorkGroups.x * team.count * ROWS;
      next_begin = 0;
    }
    Chunk loaded[IN_FLIGHT];
    if (next < count) load_turn(next, next_begin, team, loaded);
    add_steps(w, from, 0, begin + team.lane, team, sums);
    if (is_end) {
      sum_lanes(from, team, sums);
      store_rows(first, sums, team);
      [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] = 0;
    }
    [[unroll]] for (uint i = 0; i < IN_FLIGHT; ++i) w[i] = loaded[i];
    first = next;
    begin = next_begin;
  }
}

#endif
