#include "runtime/cpu/read_memory.h"

#include <cstring>

#if defined(__x86_64__)
#include "runtime/cpu/simd_intrinsics.h"
#endif

namespace moepack {
namespace {

constexpr std::size_t kLanes = 8;

std::uint64_t xor_lanes(const std::uint64_t* lanes) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < kLanes; ++i) all ^= lanes[i];
  return all;
}

std::uint64_t xor_scalar(const std::byte* data, std::size_t size) {
  std::uint64_t lanes[kLanes] = {};
  for (std::size_t at = 0; at < size; at += sizeof(lanes)) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, data + at + i * sizeof(word), sizeof(word));
      lanes[i] ^= word;
    }
  }
  return xor_lanes(lanes);
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) std::uint64_t xor_avx2(const std::byte* data, std::size_t size) {
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  __m256i c = a;
  __m256i d = a;
  for (std::size_t at = 0; at < size; at += 4 * sizeof(__m256i)) {
    const auto* from = reinterpret_cast<const __m256i*>(data + at);
    a = _mm256_xor_si256(a, _mm256_loadu_si256(from));
    b = _mm256_xor_si256(b, _mm256_loadu_si256(from + 1));
    c = _mm256_xor_si256(c, _mm256_loadu_si256(from + 2));
    d = _mm256_xor_si256(d, _mm256_loadu_si256(from + 3));
  }
  std::uint64_t lanes[kLanes] = {};
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_xor_si256(a, b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes) + 1, _mm256_xor_si256(c, d));
  return xor_lanes(lanes);
}

__attribute__((target("avx512f"))) std::uint64_t xor_avx512(const std::byte* data,
                                                            std::size_t size) {
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  __m512i c = a;
  __m512i d = a;
  for (std::size_t at = 0; at < size; at += 4 * sizeof(__m512i)) {
    const std::byte* from = data + at;
    a = _mm512_xor_si512(a, _mm512_loadu_si512(from));
    b = _mm512_xor_si512(b, _mm512_loadu_si512(from + sizeof(__m512i)));
    c = _mm512_xor_si512(c, _mm512_loadu_si512(from + 2 * sizeof(__m512i)));
    d = _mm512_xor_si512(d, _mm512_loadu_si512(from + 3 * sizeof(__m512i)));
  }
  std::uint64_t lanes[kLanes] = {};
  _mm512_storeu_si512(lanes, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
  return xor_lanes(lanes);
}

#endif

}  // namespace

std::uint64_t xor_words(CpuLevel level, std::span<const std::byte> data) {
#if defined(__x86_64__)
  if (level == CpuLevel::kAvx2 || level == CpuLevel::kAvxVnni)
    return xor_avx2(data.data(), data.size());
  if (level != CpuLevel::kScalar) return xor_avx512(data.data(), data.size());
#else
  (void)level;
#endif
  return xor_scalar(data.data(), data.size());
}

}  // namespace moepack
