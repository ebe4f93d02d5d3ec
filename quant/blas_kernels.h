// Which kernels OpenBLAS computes with. It knows processors by their family and model numbers, and
// 0.3.21 takes Intel's with model numbers that it does not know for a Pentium 4: kernels with SSE3,
// a fifth as fast (docs/decisions.md, section 91).
#pragma once

namespace moepack {

// Before main: where OpenBLAS did not choose the Pentium 4's, or the user chose
// (OPENBLAS_CORETYPE), nothing changes; otherwise it takes the kernels for the instructions that
// the processor has. Once, before any other thread and any product. Source: driver/others/dynamic.c
// of OpenBLAS.
bool choose_blas_kernels();

}  // namespace moepack
