#ifndef MOEPACK_SHADERS_FILL_WORDS_ARGS_H
#define MOEPACK_SHADERS_FILL_WORDS_ARGS_H

#include "shaders/shared_types.h"

MOE_SHADER_STRUCTS

/* Fills memory with a word: beside other dispatches, where a command that fills needs barriers of its
   own. Grid: any number of work groups. Specialization constant: 0 threads of a work group. */
struct FillWordsArgs {
  MOE_ADDRESS(Words4) to;
  uint count; /* of 16 bytes */
  uint word;
};

MOE_SHADER_STRUCTS_END

#endif
