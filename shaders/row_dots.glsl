// Products of rows of weights with a row of inputs. A team of lanes takes a few rows together, so
// that an input is read once for all of them; its lanes take the chunks of the rows in turn. The
// order of the sums depends on COLS and the number of lanes alone.
#ifndef MOEPACK_SHADERS_ROW_DOTS_GLSL
#define MOEPACK_SHADERS_ROW_DOTS_GLSL

layout(constant_id = 5) const uint LANES = 32;  // of a team: a power of two
layout(constant_id = 6) const uint ROWS = 2;    // that a team takes together, of each matrix
layout(constant_id = 7) const uint STEPS = 1;   // chunks of each row that are in flight together

// Matrices that a team takes together; whoever includes this may say another number.
#ifndef MATRICES
#define MATRICES 1
#endif
const uint DOTS = ROWS * MATRICES;

struct Team {
  uint index;
  uint count;
  uint lane;
  uint lanes;
};

Team team_of_lane() {
  const uint lanes = min(LANES, gl_SubgroupSize);
  const uint teams = gl_SubgroupSize / lanes;
  return Team(gl_SubgroupID * teams + gl_SubgroupInvocationID / lanes, gl_NumSubgroups * teams,
              gl_SubgroupInvocationID % lanes, lanes);
}

// The product of a part with its inputs, whose sums are input_row.glsl's.
float part_dot(Chunk w, uint part, float values[PART], vec2 sums) {
  float code[PART];
#if HAS_RAISED
  raised_codes(w, part, code);
#else
  part_codes(w, part, code);
#endif
  float sum = 0;
  [[unroll]] for (uint i = 0; i < PART; ++i) sum = fma(code[i], values[i], sum);
#if HAS_RAISED
  sum -= sums.y;
#endif
#if HAS_SCALE
  const vec2 scale = part_scale(w, part);
  sum *= scale.x;
#if HAS_BIAS
  sum = fma(scale.y, sums.x, sum);
#endif
#endif
  return sum;
}

// Chunks that a lane has in flight.
const uint IN_FLIGHT = STEPS * DOTS;

// The chunks of STEPS steps from the lane's chunk `first` on; beyond the row, some chunk.
void load_steps(RowRef rows[DOTS], uint first, Team team, out Chunk w[IN_FLIGHT]) {
  [[unroll]] for (uint step = 0; step < STEPS; ++step) {
    const uint chunk = min(first + step * team.lanes, CHUNKS - 1);
    [[unroll]] for (uint r = 0; r < DOTS; ++r) w[step * DOTS + r] = load_chunk(rows[r], chunk);
  }
}

void add_steps(Chunk w[IN_FLIGHT], InputRow from, uint input_row, uint first, Team team,
               inout float sums[DOTS]) {
  [[unroll]] for (uint step = 0; step < STEPS; ++step) {
    const uint chunk = first + step * team.lanes;
    if (chunk < CHUNKS) {
      [[unroll]] for (uint part = 0; part < PARTS; ++part) {
        float values[PART];
        vec2 value_sums;
        read_part(from, input_row, chunk, part, values, value_sums);
        [[unroll]] for (uint r = 0; r < DOTS; ++r) {
          sums[r] += part_dot(w[step * DOTS + r], part, values, value_sums);
        }
      }
    }
  }
}

// What the lanes of a team have, summed, at each of them.
void sum_lanes(InputRow from, Team team, inout float sums[DOTS]) {
  for (uint lane = 1; lane < team.lanes; lane *= 2) {
    [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] += subgroupShuffleXor(sums[r], lane);
  }
  [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] *= from.after;
}

// Products of rows of weights with row `input_row` of the kept inputs, at every lane of the team. `w`
// holds what load_steps() gave for the lane's first chunk: loaded as early as can be.
void dot_rows(RowRef rows[DOTS], InputRow from, uint input_row, Team team, Chunk w[IN_FLIGHT],
              out float sums[DOTS]) {
  [[unroll]] for (uint r = 0; r < DOTS; ++r) sums[r] = 0;
  uint first = team.lane;
  while (first < CHUNKS) {
    add_steps(w, from, input_row, first, team, sums);
    first += STEPS * team.lanes;
    if (first < CHUNKS) load_steps(rows, first, team, w);
  }
  sum_lanes(from, team, sums);
}

// The same where nothing was loaded yet.
void dot_rows(RowRef rows[DOTS], InputRow from, uint input_row, Team team, out float sums[DOTS]) {
  Chunk w[IN_FLIGHT];
  load_steps(rows, team.lane, team, w);
  dot_rows(rows, from, input_row, team, w, sums);
}

#endif
