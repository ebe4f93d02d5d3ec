// Reading memory as fast as the processor can, to measure what a computation that reads its weights
// once could reach at best.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/kernels.h"

namespace moepack {

// The exclusive or of the 64-bit words of `data`, whose size is a multiple of kReadStep, with the
// widest loads of `level`; the machine has that level. Pure; any number of threads.
std::uint64_t xor_words(CpuLevel level, std::span<const std::byte> data);
constexpr std::size_t kReadStep = 512;  // bytes

}  // namespace moepack
