/* How the prompt path groups the uses of experts: group_rows.comp writes this, gate_up_matmul.comp and
   down_matmul.comp read it.

   A pair is one use of an expert by a row; its id is row * slots + slot, as in the router's choices
   [rows][slots]. group_rows sorts the ids of all pairs of live rows by expert, in order of id within an
   expert (a counting sort without atomics, so that two runs give the same list):
     pairs  uint [rows * slots]     ids of pairs, those of one expert side by side
     tiles  ExpertTile [tile count] every tile is at most MOE_TILE_PAIRS consecutive entries of `pairs`
                                    of one expert; tiles of an expert lie side by side; no tile is empty.
                                    At most rows * slots / MOE_TILE_PAIRS + experts + 1 tiles.
     grids  DispatchGrid [n]        for dispatch_indirect: {tile count, y[i], 1} with y[i] an argument of
                                    group_rows (the tiles of outputs of the i-th product), n <= 4
   Inputs and results of products are indexed by the pair's id, not by its place in the list:
   act [rows * slots][width], result [rows * slots][hidden]. Pairs of absent experts (record address 0)
   are skipped: what lies at their place in act and result stays as it was. */
#ifndef MOEPACK_SHADERS_EXPERT_GROUPS_H
#define MOEPACK_SHADERS_EXPERT_GROUPS_H

#include "shaders/shared_types.h"

/* Most pairs of a tile. */
#define MOE_TILE_PAIRS 64

MOE_SHADER_STRUCTS

struct ExpertTile {
  uint expert; /* the shared expert has the number that follows the routed ones' */
  uint first;  /* index in `pairs` */
  uint count;  /* 1 … MOE_TILE_PAIRS */
};

/* VkDispatchIndirectCommand. */
struct DispatchGrid {
  uint x;
  uint y;
  uint z;
};

MOE_SHADER_STRUCTS_END

#ifndef __cplusplus
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer ExpertTiles { ExpertTile v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer DispatchGrids { DispatchGrid v[]; };
#endif

#endif
