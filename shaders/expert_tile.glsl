// The tile of pairs that a work group of an expert product serves, from `args` of the program that
// includes this (records, kinds, kind, pairs, tiles).
#ifndef MOEPACK_SHADERS_EXPERT_TILE_GLSL
#define MOEPACK_SHADERS_EXPERT_TILE_GLSL

#include "shaders/addresses.glsl"
#include "shaders/expert_groups.h"

ExpertTile tile;  // of this work group
uint64_t record;  // address of its expert's record

// False: this program has nothing to do for the tile.
bool find_tile() {
  tile = args.tiles.v[gl_WorkGroupID.y];
  record = packUint2x32(args.records.v[tile.expert]);
  if (record == 0) return false;
  return uint64_t(args.kinds) == 0 || args.kinds.v[tile.expert] == args.kind;
}

// Id of the n-th pair of the tile; the last one's for those behind it.
uint pair_of(uint n) { return args.pairs.v[tile.first + min(n, tile.count - 1)]; }

#endif
