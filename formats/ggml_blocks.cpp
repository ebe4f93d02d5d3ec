#include "formats/ggml_blocks.h"

#include <array>
#include <bit>
#include <cassert>

#include "formats/bytes.h"
#include "formats/dtype.h"

namespace moepack {
namespace {

std::uint32_t byte_at(const std::byte* at, std::size_t index) {
  return std::to_integer<std::uint32_t>(at[index]);
}
float half_at(const std::byte* at) { return f16_to_f32(load_le<std::uint16_t>(at)); }

// ---- Q5_K: eight sub-blocks of 32 five-bit codes with six-bit scales and minima
// ------------------
//   f16 d @0, f16 dmin @2, scales[12] @4, high bits[32] @16, low nibbles[128] @48

struct ScaleAndMin {
  std::uint32_t scale;
  std::uint32_t min;
};

// Pair `j` of the twelve bytes that hold eight pairs of six bits.
ScaleAndMin packed_pair(const std::byte* scales, std::size_t j) {
  if (j < 4) return {byte_at(scales, j) & 63U, byte_at(scales, j + 4) & 63U};
  return {(byte_at(scales, j + 4) & 15U) | ((byte_at(scales, j - 4) >> 6) << 4),
          (byte_at(scales, j + 4) >> 4) | ((byte_at(scales, j) >> 6) << 4)};
}

void decode_q5_k(const std::byte* block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const std::byte* high = block + 16;
  const std::byte* low = block + 48;
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const ScaleAndMin pair = packed_pair(block + 4, sub);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t nibble = (byte_at(low, sub / 2 * 32 + i) >> (sub % 2 * 4)) & 15U;
      const std::uint32_t code = nibble | (((byte_at(high, i) >> sub) & 1U) << 4);
      const float product = scale * static_cast<float>(code);
      out[sub * 32 + i] = product - min;
    }
  }
}

// ---- IQ3_XXS: eight sub-blocks of 32; four weights an entry of a grid, signs apart --------------
//   f16 d @0, grid entries[64] @2, eight u32 @66: four sign sets of seven bits, scale in the top
//   four

// Four digits of three bits each, the first weight lowest.
constexpr std::array<std::uint16_t, 256> kIq3XxsGrid{
    0,    2,    4,    9,    11,   15,   16,   18,   25,   34,   59,   61,   65,   67,   72,   74,
    81,   85,   88,   90,   97,   108,  120,  128,  130,  132,  137,  144,  146,  153,  155,  159,
    169,  175,  189,  193,  199,  200,  202,  213,  248,  267,  287,  292,  303,  315,  317,  321,
    327,  346,  362,  413,  436,  456,  460,  462,  483,  497,  513,  515,  520,  522,  529,  531,
    536,  538,  540,  551,  552,  576,  578,  585,  592,  594,  641,  643,  648,  650,  657,  664,
    698,  704,  706,  720,  729,  742,  758,  769,  773,  808,  848,  852,  870,  889,  901,  978,
    992,  1024, 1026, 1033, 1035, 1040, 1042, 1046, 1049, 1058, 1089, 1091, 1093, 1096, 1098, 1105,
    1112, 1139, 1143, 1144, 1152, 1154, 1161, 1167, 1168, 1170, 1183, 1184, 1197, 1217, 1224, 1228,
    1272, 1276, 1309, 1323, 1347, 1367, 1377, 1404, 1473, 1475, 1486, 1509, 1537, 1544, 1546, 1553,
    1555, 1576, 1589, 1594, 1600, 1602, 1616, 1625, 1636, 1638, 1665, 1667, 1672, 1685, 1706, 1722,
    1737, 1755, 1816, 1831, 1850, 1856, 1862, 1874, 1901, 1932, 1950, 1971, 2011, 2032, 2052, 2063,
    2077, 2079, 2091, 2095, 2172, 2192, 2207, 2208, 2224, 2230, 2247, 2277, 2308, 2345, 2356, 2389,
    2403, 2424, 2501, 2504, 2506, 2520, 2570, 2593, 2616, 2624, 2630, 2646, 2669, 2700, 2714, 2746,
    2754, 2795, 2824, 2835, 2839, 2874, 2882, 2905, 2984, 3028, 3042, 3092, 3108, 3110, 3124, 3153,
    3185, 3215, 3252, 3288, 3294, 3364, 3397, 3434, 3483, 3523, 3537, 3587, 3589, 3591, 3592, 3610,
    3626, 3670, 3680, 3722, 3749, 3754, 3776, 3789, 3803, 3824, 3857, 3873, 3904, 3906, 3924, 3992,
};
constexpr std::array<std::uint8_t, 8> kIq3XxsValues{4, 12, 20, 28, 36, 44, 52, 62};

// Seven sign bits stand for eight: the number of minus signs is even.
std::uint32_t even_signs(std::uint32_t seven) {
  return seven | (static_cast<std::uint32_t>(std::popcount(seven) % 2) << 7);
}

void decode_iq3_xxs(const std::byte* block, float* out) {
  const float d = half_at(block);
  const std::byte* entries = block + 2;
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const auto word = load_le<std::uint32_t>(block + 66 + 4 * sub);
    const float scale = d * (0.5F + static_cast<float>(word >> 28)) * 0.5F;
    for (std::size_t eight = 0; eight < 4; ++eight) {
      const std::uint32_t signs = even_signs((word >> (7 * eight)) & 127U);
      for (std::size_t j = 0; j < 8; ++j) {
        const std::uint32_t four = kIq3XxsGrid[byte_at(entries, 8 * sub + 2 * eight + j / 4)];
        const std::uint32_t entry = four >> (3 * (j % 4));
        const float magnitude = scale * static_cast<float>(kIq3XxsValues[entry & 7U]);
        out[32 * sub + 8 * eight + j] = ((signs >> j) & 1U) != 0 ? -magnitude : magnitude;
      }
    }
  }
}

// ---- IQ4_XS: eight sub-blocks of 32 codes into a table, six-bit scales --------------------------
//   f16 d @0, u16 high scale bits @2, low scale bits[4] @4, nibbles[128] @8

constexpr std::array<std::int8_t, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

void decode_iq4_xs(const std::byte* block, float* out) {
  const float d = half_at(block);
  const std::uint32_t high = load_le<std::uint16_t>(block + 2);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::uint32_t low = (byte_at(block + 4, sub / 2) >> (4 * (sub % 2))) & 15U;
    const std::uint32_t stored = low | (((high >> (2 * sub)) & 3U) << 4);
    const float scale = d * static_cast<float>(static_cast<std::int32_t>(stored) - 32);
    const std::byte* nibbles = block + 8 + 16 * sub;
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t code = (byte_at(nibbles, i % 16) >> (4 * (i / 16))) & 15U;
      out[32 * sub + i] = scale * static_cast<float>(kIq4Values[code]);
    }
  }
}

}  // namespace

GgmlBlockDecoder block_decoder(QFormatId id) {
  switch (id) {
    case QFormatId::kQ5K:
      return decode_q5_k;
    case QFormatId::kIq3Xxs:
      return decode_iq3_xxs;
    default:
      assert(id == QFormatId::kIq4Xs);
      return decode_iq4_xs;
  }
}

void decode_block_columns(const QMatrixView& matrix, std::uint64_t row, std::uint64_t first,
                          std::span<float> out) {
  const QFormatInfo& info = qformat_info(matrix.format.id);
  assert(first % info.block_values == 0 && out.size() % info.block_values == 0);
  const GgmlBlockDecoder decode = block_decoder(info.id);
  const std::byte* block =
      matrix.weight + (row * matrix.cols + first) / info.block_values * info.block_bytes;
  for (std::size_t i = 0; i < out.size(); i += info.block_values, block += info.block_bytes) {
    decode(block, out.data() + i);
  }
}

}  // namespace moepack
