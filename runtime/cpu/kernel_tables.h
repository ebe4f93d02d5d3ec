// The SIMD tables, for dispatch alone: a processor without the table's CpuLevel cannot run what is
// called through it. Everybody else uses cpu_kernels() in runtime/model/kernels.h.
#pragma once

#include <string_view>

#include "runtime/model/delta_block.h"
#include "runtime/model/kernels.h"

namespace moepack {

// A table that is another one but for its products in integers, with the same bits as its.
inline Kernels with_codes(Kernels table, std::string_view name, const CodeKernels& codes) {
  table.name = name;
  table.codes = codes;
  return table;
}

// For all processors.
const DeltaBlockKernels& scalar_delta_block();

#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avxvnni_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512vnni_kernels();
const Kernels& amx_kernels();

const DeltaBlockKernels& avx2_delta_block();
const DeltaBlockKernels& avx512_delta_block();
extern const AttentionKernels kAvx2Attention;
extern const AttentionKernels kAvx512Attention;
#elif defined(__aarch64__)
const Kernels& neon_kernels();
const DeltaBlockKernels& neon_delta_block();
extern const AttentionKernels kNeonAttention;
#endif

}  // namespace moepack
