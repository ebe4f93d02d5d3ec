// Resident matrices of float32 that lose nothing in bfloat16.
#pragma once

#include "runtime/model/model_weights.h"
#include "runtime/model/thread_pool.h"

namespace moepack {

// Brings every matrix of float32 whose values are bfloat16 numbers all of them into bfloat16, in
// place: half of its bytes are read for a product then, and the other half of its memory lies idle.
// GGUF files have routers so, whose checkpoints were in bfloat16. Products keep their bits. The
// views of `weights` stay where they point; one thread at a time calls it, before anything reads
// them.
void narrow_exact_floats(ModelWeights& weights, ThreadPool& pool);

}  // namespace moepack
