/* Constants of the weight formats, as preprocessor numbers so that C++ and GLSL read the same ones.
   Ids stand in files: never renumber. */
#ifndef MOEPACK_FORMATS_QFORMAT_DEFS_H
#define MOEPACK_FORMATS_QFORMAT_DEFS_H

#define MOE_QFORMAT_F32 1
#define MOE_QFORMAT_F16 2
#define MOE_QFORMAT_BF16 3

/* Affine: weight = code * scale + bias, one scale and bias per group along the input; codes are a
   little-endian bit stream per row (MLX's packing). */
#define MOE_QFORMAT_Q2 16
#define MOE_QFORMAT_Q3 17
#define MOE_QFORMAT_Q4 18
#define MOE_QFORMAT_Q5 19
#define MOE_QFORMAT_Q6 20
#define MOE_QFORMAT_Q8 21

/* Blocks of ggml: 64 + ggml's own type number. A block holds consecutive inputs of one row with all
   that belongs to them. */
#define MOE_QFORMAT_Q5_K 77
#define MOE_QFORMAT_IQ3_XXS 82
#define MOE_QFORMAT_IQ4_XS 87

/* Rows of affine codes are stored in 32-bit words, so a row holds a multiple of this many codes. */
#define MOE_AFFINE_ROW_MULTIPLE 32

#endif
