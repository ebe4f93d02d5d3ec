#include "quant/blas_kernels.h"

#include <cblas.h>

#include <cstdlib>
#include <cstring>

extern "C" {
// Of an OpenBLAS with kernels for many processors; absent from others.
[[gnu::weak]] void gotoblas_dynamic_init();
[[gnu::weak]] void gotoblas_dynamic_quit();
}

namespace moepack {
namespace {

constexpr const char* kCoreVariable = "OPENBLAS_CORETYPE";

// OpenBLAS's name of the oldest processor with the instructions of this one; null: one without
// AVX2.
const char* core_by_instructions() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return nullptr;
  const bool has_avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has_avx512 ? "SkylakeX" : "Haswell";
#else
  return nullptr;
#endif
}

}  // namespace

bool choose_blas_kernels() {
  if (gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr) return false;
  if (std::getenv(kCoreVariable) != nullptr) return false;
  const char* const core = core_by_instructions();
  if (core == nullptr || std::strcmp(openblas_get_corename(), "Prescott") != 0) return false;
  ::setenv(kCoreVariable, core, 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  ::unsetenv(kCoreVariable);
  return true;
}

}  // namespace moepack
