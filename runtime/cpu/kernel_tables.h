// The SIMD tables, for dispatch alone: a processor without the table's CpuLevel cannot run what is
// called through it. Everybody else uses cpu_kernels() in runtime/model/kernels.h.
#pragma once

#include "runtime/model/kernels.h"

namespace moepack {

#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512vnni_kernels();
extern const AttentionKernels kAvx2Attention;
extern const AttentionKernels kAvx512Attention;
#endif

}  // namespace moepack
