#ifndef MOEPACK_SHADERS_STAGE_ARGS_H
#define MOEPACK_SHADERS_STAGE_ARGS_H

/* The order of stages by counters (stage_order.glsl, runtime/vulkan/stage_order.h). A program NAME_ordered
   finds the address of its stage's record behind its arguments, at MOE_STAGE_AT of the push constants; the
   records of the stages before lie before it. Words of a record: */
#define MOE_STAGE_AT 120
#define MOE_STAGE_BYTES 64 /* from record to record, so that stages do not meet in a line of the cache */
#define MOE_STAGE_LEFT 0   /* work groups that are not done yet */
#define MOE_STAGE_WRONG 1  /* not 0: a wait of this stage, or of one before, was given up */
#define MOE_STAGE_LOST 2   /* two words: the address of a word that is not 0 when a wait was given up */

/* A word of what ordered programs hand to each other, before it is written; a number as good as none. */
#define MOE_NOT_HANDED 0xffffffffu
#define MOE_MOST_LOOKS 4096u /* at a word, before the count of its stage is waited for */

#endif
