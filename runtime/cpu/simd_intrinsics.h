// What sources of x86 SIMD kernels include first: the intrinsics, and what the *.inc files use.
#pragma once

#if !defined(__clang__)
// gcc 12 takes the "undefined" operands inside its own intrinsics for mistakes (gcc bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
