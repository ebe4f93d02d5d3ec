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
#define MOE_QFORMAT_Q4_0 66
#define MOE_QFORMAT_Q4_1 67
#define MOE_QFORMAT_Q5_0 70
#define MOE_QFORMAT_Q5_1 71
#define MOE_QFORMAT_Q8_0 72
#define MOE_QFORMAT_Q2_K 74
#define MOE_QFORMAT_Q3_K 75
#define MOE_QFORMAT_Q4_K 76
#define MOE_QFORMAT_Q5_K 77
#define MOE_QFORMAT_Q6_K 78
#define MOE_QFORMAT_IQ2_XXS 80
#define MOE_QFORMAT_IQ2_XS 81
#define MOE_QFORMAT_IQ3_XXS 82
#define MOE_QFORMAT_IQ1_S 83
#define MOE_QFORMAT_IQ4_NL 84
#define MOE_QFORMAT_IQ3_S 85
#define MOE_QFORMAT_IQ2_S 86
#define MOE_QFORMAT_IQ4_XS 87
#define MOE_QFORMAT_IQ1_M 93
#define MOE_QFORMAT_TQ1_0 98
#define MOE_QFORMAT_TQ2_0 99
#define MOE_QFORMAT_MXFP4 103
#define MOE_QFORMAT_NVFP4 104
#define MOE_QFORMAT_Q1_0 105
#define MOE_QFORMAT_Q2_0 106

/* Blocks of our own: what checkpoints hold and no block of ggml does. Ids from 160 on. */
#define MOE_QFORMAT_FIRST_OWN 160
#define MOE_QFORMAT_F8_E4M3 160
#define MOE_QFORMAT_MXFP8 161
#define MOE_QFORMAT_NVFP4_SCALED 162

/* Rows of affine codes are stored in 32-bit words, so a row holds a multiple of this many codes. */
#define MOE_AFFINE_ROW_MULTIPLE 32

#endif
