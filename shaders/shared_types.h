/* What C++ and GLSL share of a kernel's arguments. A header NAME_args.h holds one struct of addresses
   and 32-bit fields, at most 128 bytes, MOE_STAGE_AT (stage_args.h) where the program has an ordered
   form: the push constants of NAME.comp. Addresses come first, so
   that both languages lay it out alike (GLSL with scalar layout). */
#ifndef MOEPACK_SHADERS_SHARED_TYPES_H
#define MOEPACK_SHADERS_SHARED_TYPES_H

#ifdef __cplusplus

#include <cstdint>

namespace moepack::shader {
using uint = std::uint32_t;
}
/* The address of device memory that holds what the GLSL type of this name describes. */
#define MOE_ADDRESS(type) std::uint64_t
#define MOE_SHADER_STRUCTS namespace moepack::shader {
#define MOE_SHADER_STRUCTS_END }

#else

#define MOE_ADDRESS(type) type
#define MOE_SHADER_STRUCTS
#define MOE_SHADER_STRUCTS_END

#endif

MOE_SHADER_STRUCTS

/* A row of a batch: one token of one sequence. */
struct BatchRow {
  uint token;     /* id in the vocabulary */
  uint position;  /* of the token in its sequence */
  uint slice;     /* index of its BatchSlice */
  uint live;      /* 0: the row belongs to no slice, its results mean nothing */
};

/* Consecutive rows of one sequence. */
struct BatchSlice {
  uint first;     /* row */
  uint count;     /* rows */
  uint position;  /* of the first row's token */
  uint live;      /* 0: its state stays as it is */
};

/* One use of an expert by a row. */
struct Choice {
  uint expert; /* the shared expert has the number that follows the routed ones' */
  float weight;
};

MOE_SHADER_STRUCTS_END

#endif
