#ifndef MOEPACK_SHADERS_COPY_WORDS_ARGS_H
#define MOEPACK_SHADERS_COPY_WORDS_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* Copies words, for instance to memory of the host: beside other dispatches, where a command that
   copies needs barriers of its own. Grid: any number of work groups. Specialization constant: 0 threads
   of a work group. */
struct CopyWordsArgs {
  MOE_ADDRESS(Words) from;
  MOE_ADDRESS(Words) to; /* does not overlap */
  uint count;
};

MOE_SHADER_STRUCTS_END

#endif
