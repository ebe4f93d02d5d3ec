/* Where the grids of ggml's I-quants lie in the buffer of tables: entries of 16 bits, as
   formats/weights/ggml_grids.h has them. runtime/vulkan/weight_kernels.h fills the buffer. */
#ifndef MOEPACK_SHADERS_WEIGHT_TABLES_H
#define MOEPACK_SHADERS_WEIGHT_TABLES_H

#define MOE_GRID_IQ2_XXS 0
#define MOE_GRID_IQ2_XS 256
#define MOE_GRID_IQ2_S 768
#define MOE_GRID_IQ3_XXS 1792
#define MOE_GRID_IQ3_S 2048
#define MOE_GRID_IQ1 2560
#define MOE_GRID_ENTRIES 4608

#endif
