/* What products of experts read from group_rows (group_rows_args.h): pairs sorted by expert, and tiles
   of them, as many as a tile of matmul_tile.glsl has tokens, or fewer. A pair's number is
   row * slots + slot; inputs and results of products are indexed by that number, not by its place in
   the list: act [rows * slots][width], result [rows * slots][hidden]. Pairs of absent experts (record
   address 0) are skipped: what lies at their place in act and result stays as it was. */
#ifndef MOEPACK_SHADERS_EXPERT_GROUPS_H
#define MOEPACK_SHADERS_EXPERT_GROUPS_H

#include "shaders/group_rows_args.h"

#endif
