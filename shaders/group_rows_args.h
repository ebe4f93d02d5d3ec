#ifndef MOEPACK_SHADERS_GROUP_ROWS_ARGS_H
#define MOEPACK_SHADERS_GROUP_ROWS_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* Pairs of one expert that a work group of a product takes. */
struct ExpertTile {
  uint expert;
  uint first; /* index of its first pair */
  uint count; /* 1 to the tile's size */
};

/* A VkDispatchIndirectCommand. */
struct DispatchSize {
  uint x;
  uint y;
  uint z;
};

#ifndef __cplusplus
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer ExpertTiles { ExpertTile v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer DispatchSizes {
  DispatchSize v[];
};
#endif

/* Sorts the (row, slot) pairs of a batch by expert, then row, then slot. A pair is the number
   row * slots + slot; pairs of no expert (MOE_NO_EXPERT) are left out. Grid: experts.
   Tiles: at most count / tile + experts. Each of `dispatches` sizes gets y = tiles and z = 1; x stays
   as the host wrote it (work groups over columns).
   Specialization constants: 0 threads of a work group, 1 experts, the shared one included (at most
   1025). */
struct GroupRowsArgs {
  MOE_ADDRESS(Choices) choices;    /* [count] */
  MOE_ADDRESS(Words) pairs;        /* out, [count] */
  MOE_ADDRESS(Words) offsets;      /* out, [experts + 1]: first pair of each expert, then their end */
  MOE_ADDRESS(ExpertTiles) tiles;  /* out */
  MOE_ADDRESS(DispatchSizes) sizes;
  uint count; /* rows * slots */
  uint tile;  /* pairs of a tile */
  uint dispatches;
};

MOE_SHADER_STRUCTS_END

#endif
