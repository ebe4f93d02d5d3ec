// Resident matrices in the order that the kernels read fastest.
#pragma once

#include "runtime/model/code_kernels.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/thread_pool.h"

namespace moepack {

// Brings the rows of every matrix that products take, and whose format `codes` reads in panels,
// into panels (formats/weights/row_order.h), in place: values stay what they are. The embedding
// stays in rows, unless it is the output head too.
void put_in_panels(ModelWeights& weights, const CodeKernels& codes, ThreadPool& pool);

}  // namespace moepack
