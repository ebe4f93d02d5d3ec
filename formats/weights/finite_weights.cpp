#include "formats/weights/finite_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "formats/base/bytes.h"
#include "formats/weights/ggml_blocks.h"

namespace moepack {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

// A float is not finite when its exponent is all ones. In every lane of a word the exponent alone,
// plus its lowest bit, reaches the place of the sign exactly then, and never the next lane.
struct ExponentLanes {
  std::uint64_t mask;
  std::uint64_t lowest;
  std::uint64_t sign;
};

ExponentLanes exponent_lanes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {0x7f8000007f800000U, 0x0080000000800000U, 0x8000000080000000U};
    case DType::kF16:
      return {0x7c007c007c007c00U, 0x0400040004000400U, 0x8000800080008000U};
    default:  // BF16
      return {0x7f807f807f807f80U, 0x0080008000800080U, 0x8000800080008000U};
  }
}

// Bits of finite values may be set too, those of signs only where a lane is not finite.
std::uint64_t carried(const ExponentLanes& lanes, std::uint64_t word) {
  return (word & lanes.mask) + lanes.lowest;
}

// A bit pattern without which a block is finite: all bits of `mask` in the u16 at `offset`.
struct BlockSign {
  std::uint8_t offset = 0;
  std::uint16_t mask = 0;  // 0: there is none
};

struct BlockSignRow {
  QFormatId id;
  std::array<BlockSign, 2> signs;
};

constexpr std::uint16_t kHalfExponent = 0x7c00;

// Most have binary16 scales, whose products with codes stay far below what float32 holds. IQ1_M
// has the exponent of its scale in its last word of scales; MXFP4 has an exponent of eight bits, of
// which the three or four highest are too large. NVFP4 has nothing that overflows.
constexpr std::array<BlockSignRow, 25> kBlockSigns{{
    {QFormatId::kQ40, {{{0, kHalfExponent}}}},
    {QFormatId::kQ41, {{{0, kHalfExponent}, {2, kHalfExponent}}}},
    {QFormatId::kQ50, {{{0, kHalfExponent}}}},
    {QFormatId::kQ51, {{{0, kHalfExponent}, {2, kHalfExponent}}}},
    {QFormatId::kQ80, {{{0, kHalfExponent}}}},
    {QFormatId::kQ2K, {{{80, kHalfExponent}, {82, kHalfExponent}}}},
    {QFormatId::kQ3K, {{{108, kHalfExponent}}}},
    {QFormatId::kQ4K, {{{0, kHalfExponent}, {2, kHalfExponent}}}},
    {QFormatId::kQ5K, {{{0, kHalfExponent}, {2, kHalfExponent}}}},
    {QFormatId::kQ6K, {{{208, kHalfExponent}}}},
    {QFormatId::kIq2Xxs, {{{0, kHalfExponent}}}},
    {QFormatId::kIq2Xs, {{{0, kHalfExponent}}}},
    {QFormatId::kIq3Xxs, {{{0, kHalfExponent}}}},
    {QFormatId::kIq1S, {{{0, kHalfExponent}}}},
    {QFormatId::kIq4Nl, {{{0, kHalfExponent}}}},
    {QFormatId::kIq3S, {{{0, kHalfExponent}}}},
    {QFormatId::kIq2S, {{{0, kHalfExponent}}}},
    {QFormatId::kIq4Xs, {{{0, kHalfExponent}}}},
    {QFormatId::kIq1M, {{{54, 0x7000}}}},
    {QFormatId::kTq10, {{{52, kHalfExponent}}}},
    {QFormatId::kTq20, {{{64, kHalfExponent}}}},
    {QFormatId::kMxfp4, {{{0, 0x00fc}}}},
    {QFormatId::kNvfp4, {}},
    {QFormatId::kQ10, {{{0, kHalfExponent}}}},
    {QFormatId::kQ20, {{{0, kHalfExponent}}}},
}};

// Codes and scales that mean NaN may stand anywhere in these.
bool has_float_codes(QFormatId id) {
  return id == QFormatId::kF8E4M3 || id == QFormatId::kMxfp8 || id == QFormatId::kNvfp4Scaled;
}

bool has_sign(const BlockSign& sign, const std::byte* block) {
  return sign.mask != 0 && (load_le<std::uint16_t>(block + sign.offset) & sign.mask) == sign.mask;
}

bool decodes_to_finite(const QFormatInfo& info, const std::byte* block) {
  std::array<float, 256> values{};
  block_decoder(info.id)(block, values.data());
  return std::all_of(values.begin(), values.begin() + info.block_values,
                     [](float value) { return std::isfinite(value); });
}

}  // namespace

// Four words at a time without an exit, which gcc and clang make wide: as fast as a copy.
bool floats_are_finite(DType dtype, std::span<const std::byte> values) {
  const ExponentLanes lanes = exponent_lanes(dtype);
  const auto word_at = [&](std::size_t at, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, values.data() + at, size);
    return word;
  };
  constexpr std::size_t kWords = 4;
  std::array<std::uint64_t, kWords> found{};
  std::size_t at = 0;
  for (; at + kWords * kWordBytes <= values.size(); at += kWords * kWordBytes) {
    for (std::size_t w = 0; w < kWords; ++w) {
      found[w] |= carried(lanes, word_at(at + w * kWordBytes, kWordBytes));
    }
  }
  for (; at < values.size(); at += kWordBytes) {
    found[0] |= carried(lanes, word_at(at, std::min(values.size() - at, kWordBytes)));
  }
  return ((found[0] | found[1] | found[2] | found[3]) & lanes.sign) == 0;
}

bool blocks_are_finite(QFormatId id, std::span<const std::byte> blocks) {
  const QFormatInfo& info = qformat_info(id);
  const bool is_any = has_float_codes(id);
  const auto* const row = std::find_if(kBlockSigns.begin(), kBlockSigns.end(),
                                       [&](const BlockSignRow& r) { return r.id == id; });
  const std::array<BlockSign, 2> signs = is_any ? std::array<BlockSign, 2>{} : row->signs;
  for (std::size_t at = 0; at + info.block_bytes <= blocks.size(); at += info.block_bytes) {
    const std::byte* block = blocks.data() + at;
    if (!is_any && !has_sign(signs[0], block) && !has_sign(signs[1], block)) continue;
    if (!decodes_to_finite(info, block)) return false;
  }
  return true;
}

bool weights_are_finite(const WeightFormat& format, std::span<const std::byte> weight) {
  const QFormatInfo& info = qformat_info(format.id);
  switch (info.kind) {
    case QKind::kPlain:
      return floats_are_finite(info.storage, weight);
    case QKind::kBlock:
      return blocks_are_finite(info.id, weight);
    case QKind::kAffine:
      break;
  }
  return true;
}

}  // namespace moepack
