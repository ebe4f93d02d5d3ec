// The product of a matrix with one row of inputs, by some work groups. Whoever includes this has `args`
// (of MatvecArgs the fields that are read here), find_input() and store(row, value).
#ifndef MOEPACK_SHADERS_MATVEC_ROWS_GLSL
#define MOEPACK_SHADERS_MATVEC_ROWS_GLSL

#include "shaders/row_turns.glsl"

void find_rows(uint first, out RowRef rows[DOTS]) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    rows[r] = row_ref(uint64_t(args.codes), uint64_t(args.scales), uint64_t(args.biases),
                      min(first + r, args.rows - 1));
  }
}

void store_rows(uint first, float sums[DOTS], Team team) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    if (team.lane == r % team.lanes && first + r < args.rows) store(first + r, sums[r]);
  }
}

// All rows that are this work group's.
void multiply_rows() {
  const Team team = team_of_lane();
  // The weights are on their way while the inputs are normed.
  Chunk w[IN_FLIGHT];
  load_turn(first_turn(team), 0, team, w);
#if HAS_TABLES
  fill_tables(args.tables, thread_index(), gl_WorkGroupSize.x);
#endif
  InputRow from = find_input();
  keep_normed(from, args.eps);
  take_turns(args.rows, from, team, w);
}

#endif
