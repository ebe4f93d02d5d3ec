// What the tables of products in integers share.
#pragma once

#include "runtime/cpu/code_kernels.h"

namespace moepack {

// CodeKernels::multiply with the kernel that find() has for the format, which is one that the table
// supports. Where it has one for rows that follow each other alone, panels are restored. The last
// rows of a matrix, fewer than kCodeRows, are computed one by one, to the same bits. has_tiles:
// of CodeCall.
void multiply_with(CodeMultiply (*find)(const WeightFormat&), const CodeProduct& product,
                   bool has_tiles = false);

}  // namespace moepack
