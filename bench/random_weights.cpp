#include "bench/random_weights.h"

#include <cstdint>
#include <random>
#include <vector>

#include "formats/base/bytes.h"

namespace moepack {
namespace {

// Where the binary16 scales of a block stand; formats without one do not mind.
std::vector<std::size_t> half_fields(QFormatId id) {
  switch (id) {
    case QFormatId::kQ41:
    case QFormatId::kQ51:
    case QFormatId::kQ4K:
    case QFormatId::kQ5K:
      return {0, 2};
    case QFormatId::kQ2K:
      return {80, 82};
    case QFormatId::kQ3K:
      return {108};
    case QFormatId::kQ6K:
      return {208};
    case QFormatId::kTq10:
      return {52};
    case QFormatId::kTq20:
      return {64};
    default:
      return {0};
  }
}

// The exponent of a power of two that these have in place of a binary16: 2^-4, since most others
// would make products of subnormal or infinite numbers.
constexpr std::byte kExponent{127 - 4};
bool has_exponent(QFormatId id) { return id == QFormatId::kMxfp4 || id == QFormatId::kMxfp8; }

// Random codes and scales near 1/16.
void fill_blocks(const QFormatInfo& info, std::span<std::byte> weight) {
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i + 8 <= weight.size(); i += 8) store_le(weight.data() + i, random());
  const std::vector<std::size_t> fields = half_fields(info.id);
  for (std::size_t block = 0; block < weight.size(); block += info.block_bytes) {
    if (has_exponent(info.id)) {
      weight[block] = kExponent;
      continue;
    }
    for (std::size_t at : fields) {
      const auto mantissa = static_cast<std::uint16_t>(random() & 0x7fU);
      store_le(weight.data() + block + at, static_cast<std::uint16_t>(0x2c00U | mantissa));
    }
  }
}

}  // namespace

void fill_random(const WeightFormat& format, std::span<std::byte> codes,
                 std::span<std::byte> scales) {
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i + 8 <= codes.size(); i += 8) {
    // Plain formats: the bits of a bfloat16 (F32: its upper half) near one half; any code else.
    const std::uint64_t bits =
        is_affine(format) ? random() : (random() & 0x007f007f007f007fU) | 0x3f003f003f003f00U;
    store_le(codes.data() + i, bits);
  }
  for (std::size_t i = 0; i + 2 <= scales.size(); i += 2) {
    store_le(scales.data() + i, static_cast<std::uint16_t>(0x3c00U + (random() & 0x7fU)));
  }
  if (is_block(format)) fill_blocks(qformat_info(format.id), codes);
}

}  // namespace moepack
