// What sources of SIMD kernels for AArch64 include first: the intrinsics, and what the *.inc files
// use.
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
