// The table of AVX2 with products of bytes (AVX-VNNI). It is the table of AVX2 but for products in
// integers.
#if defined(__x86_64__)

#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/kernel_tables.h"

namespace moepack {

const Kernels& avxvnni_kernels() {
  static const Kernels kTable = with_codes(avx2_kernels(), "avxvnni", avxvnni_code_kernels());
  return kTable;
}

}  // namespace moepack

#endif
