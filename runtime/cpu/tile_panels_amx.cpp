// Products of panels in tiles, at level amx.
#if defined(__x86_64__)

#include "runtime/cpu/tile_panels.h"

#include <array>

#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

#define MOE_TILES __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-int8")))
#define MOE_TILES_INLINE MOE_TILES MOE_INLINE

constexpr std::size_t kRows = kTileRows;
constexpr std::size_t kLanes16 = 16;
constexpr std::size_t kWordsOfGroup = 8;
constexpr long kRowBytes = 64;

// Tiles 0 and 1, and 2 and 3 of the unit behind, have the sums of high and low digits; 4 and 5
// these digits of the inputs; 6 and 7, of the next unit, codes.
constexpr std::size_t kSumTiles = 4;
constexpr std::size_t kInputTiles = 2;
constexpr std::size_t kCodeTiles = 2;

// What LDTILECFG reads.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved = {};
  std::array<std::uint16_t, 16> row_bytes = {};
  std::array<std::uint8_t, 16> rows = {};
};
static_assert(sizeof(TileShapes) == 64);

// Sums of a group as tiles leave them.
struct alignas(64) GroupSums {
  std::int32_t of[kMostDigits][kRows][kLanes16];
};

struct Tile {
  const TilePanel& panel;
  const InputBlock* x;  // of the tile's first token
  std::size_t stride;
};

// What a unit, which is a group or half of it, is made of.
struct Unit {
  const void* codes;
  const std::int8_t* inputs;  // of the first digit
};

template <std::size_t Parts, std::size_t Digits>
MOE_TILES_INLINE Unit unit_at(const Tile& tile, std::size_t unit) {
  constexpr std::size_t kBytes = kWordsOfGroup / Parts * kRowBytes;
  return {static_cast<const std::uint8_t*>(tile.panel.codes) + unit * kBytes,
          tile.x[unit / Parts * Digits].codes + unit % Parts * (kInputGroup / Parts)};
}

// Names of tiles are part of the instructions, so these are macros.
#define MOE_MULTIPLY_TILE(sums, inputs, codes) \
  do {                                         \
    if constexpr (HasBias) {                   \
      _tile_dpbsud(sums, inputs, codes);       \
    } else {                                   \
      _tile_dpbssd(sums, inputs, codes);       \
    }                                          \
  } while (false)

// Multiplies a unit, loads the next one in the places that it leaves, and stores the sums of the
// one behind. In this order tiles are waited for least where the processor cannot rename them,
// which is when something else runs on its core (docs/decisions.md, section 88).
#define MOE_STEP(high, low, here, ahead, high_behind, low_behind) \
  do {                                                            \
    _tile_loadd(ahead, next.codes, kRowBytes);                    \
    MOE_MULTIPLY_TILE(high, 4, here);                             \
    _tile_loadd(4, next.inputs, bytes);                           \
    _tile_stored(high_behind, behind.of[0], kRowBytes);           \
    if constexpr (Digits == 2) {                                  \
      MOE_MULTIPLY_TILE(low, 5, here);                            \
      _tile_loadd(5, next.inputs + sizeof(InputBlock), bytes);    \
      _tile_stored(low_behind, behind.of[1], kRowBytes);          \
      _tile_zero(low_behind);                                     \
    }                                                             \
    _tile_zero(high_behind);                                      \
  } while (false)

template <std::size_t Digits>
MOE_TILES_INLINE void begin_units(const Unit& first, long bytes) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(6, first.codes, kRowBytes);
  _tile_loadd(4, first.inputs, bytes);
  if constexpr (Digits == 2) _tile_loadd(5, first.inputs + sizeof(InputBlock), bytes);
}

template <bool HasBias, std::size_t Digits>
MOE_TILES_INLINE void multiply_unit(std::size_t unit, const Unit& next, long bytes,
                                    GroupSums& behind) {
  if (unit % 2 == 0) {
    MOE_STEP(0, 1, 6, 7, 2, 3);
  } else {
    MOE_STEP(2, 3, 7, 6, 0, 1);
  }
}

template <std::size_t Digits>
MOE_TILES_INLINE void store_last(std::size_t unit, GroupSums& sums) {
  if (unit % 2 == 0) {
    _tile_stored(0, sums.of[0], kRowBytes);
    if constexpr (Digits == 2) _tile_stored(1, sums.of[1], kRowBytes);
  } else {
    _tile_stored(2, sums.of[0], kRowBytes);
    if constexpr (Digits == 2) _tile_stored(3, sums.of[1], kRowBytes);
  }
}

// A token's sums of a unit are added up in floats.
template <std::size_t Parts, bool HasBias, std::size_t Digits>
struct Adder {
  const std::int32_t* integers;  // of the first token that counts
  const InputBlock* x;           // of that token, at the unit's columns
  std::size_t stride;
  std::size_t part;
  __m512 scales;
  __m512 biases;

  template <std::size_t T>
  MOE_TILES_INLINE void add(__m512& sum) const {
    const InputBlock& block = x[T * stride];
    __m512i words = _mm512_load_si512(integers + T * kLanes16);
    if constexpr (Digits == 2) {
      const __m512i low = _mm512_load_si512(integers + (kRows + T) * kLanes16);
      words = _mm512_add_epi32(_mm512_slli_epi32(words, 8), low);
    }
    const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(block.scale));
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(words), scale, sum);
    if constexpr (HasBias) {
      const float input = Parts == 1 ? block.sum : block.half_sums[part];
      sum = _mm512_fmadd_ps(biases, _mm512_set1_ps(input), sum);
    }
  }
};

// Calls f<T>() for T < tokens; tokens <= 16.
template <std::size_t T = 0, class F>
MOE_TILES_INLINE void for_tokens(std::size_t tokens, const F& f) {
  if constexpr (T < kRows) {
    if (tokens >= T + 4) {
      f.template operator()<T>();
      f.template operator()<T + 1>();
      f.template operator()<T + 2>();
      f.template operator()<T + 3>();
      for_tokens<T + 4>(tokens, f);
    } else {
      if (tokens > T) f.template operator()<T>();
      if (tokens > T + 1) f.template operator()<T + 1>();
      if (tokens > T + 2) f.template operator()<T + 2>();
    }
  }
}

// The last `tokens` of the tokens of a tile.
template <std::size_t Parts, bool HasBias, std::size_t Digits>
MOE_TILES void multiply_tile(const Tile& tile, std::size_t skipped, std::size_t tokens,
                             const TileSums& at) {
  const TilePanel& panel = tile.panel;
  const std::size_t units = panel.groups * Parts;
  const auto bytes = static_cast<long>(tile.stride * sizeof(InputBlock));
  GroupSums integers[2];
  __m512 sums[kRows];
  for_tokens(tokens, [&]<std::size_t T>() MOE_TILES {
    sums[T] =
        at.from == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(at.from + T * at.from_stride);
  });
  // Sums are stored a unit behind their products, and added up another one behind.
  begin_units<Digits>(unit_at<Parts, Digits>(tile, 0), bytes);
  for (std::size_t step = 0; step < units + 2; ++step) {
    if (step < units) {
      const Unit next = unit_at<Parts, Digits>(tile, std::min(step + 1, units - 1));
      multiply_unit<HasBias, Digits>(step, next, bytes, integers[(step + 1) % 2]);
    } else if (step == units) {
      store_last<Digits>(units - 1, integers[(units - 1) % 2]);
    }
    if (step < 2) continue;
    const std::size_t unit = step - 2;
    Adder<Parts, HasBias, Digits> adder{integers[unit % 2].of[0][skipped],
                                        tile.x + skipped * tile.stride + unit / Parts * Digits,
                                        tile.stride,
                                        unit % Parts,
                                        _mm512_loadu_ps(panel.scales + unit * kLanes16),
                                        _mm512_setzero_ps()};
    if constexpr (HasBias) adder.biases = _mm512_loadu_ps(panel.biases + unit * kLanes16);
    for_tokens(tokens, [&]<std::size_t T>() MOE_TILES { adder.template add<T>(sums[T]); });
  }
  for_tokens(tokens, [&]<std::size_t T>()
                         MOE_TILES { _mm512_storeu_ps(at.to + T * at.to_stride, sums[T]); });
}

template <std::size_t Parts, bool HasBias, std::size_t Digits>
MOE_TILES void multiply_tokens(const TilePanel& panel, const TileInputs& x, std::size_t tokens,
                               const TileSums& at) {
  const std::size_t most = tokens_of_tile(tokens);
  for (std::size_t t = 0; t < tokens; t += most) {
    const std::size_t count = std::min(most, tokens - t);
    // The last tile may begin with tokens of the one before.
    const std::size_t skipped = most - count;
    const Tile tile{panel, x.first + (t - skipped) * x.stride, x.stride};
    TileSums sums = at;
    if (sums.from != nullptr) sums.from += t * sums.from_stride;
    sums.to += t * sums.to_stride;
    multiply_tile<Parts, HasBias, Digits>(tile, skipped, count, sums);
  }
}

template <std::size_t Parts, bool HasBias>
MOE_TILES void multiply_digits(const TilePanel& panel, const TileInputs& x, std::size_t digits,
                               std::size_t tokens, const TileSums& sums) {
  if (digits == 1) {
    multiply_tokens<Parts, HasBias, 1>(panel, x, tokens, sums);
  } else {
    multiply_tokens<Parts, HasBias, 2>(panel, x, tokens, sums);
  }
}

template <std::size_t Parts>
MOE_TILES void multiply_parts(const TilePanel& panel, const TileInputs& x, std::size_t digits,
                              std::size_t tokens, const TileSums& sums) {
  if (panel.biases == nullptr) {
    multiply_digits<Parts, false>(panel, x, digits, tokens, sums);
  } else {
    multiply_digits<Parts, true>(panel, x, digits, tokens, sums);
  }
}

}  // namespace

MOE_TILES void shape_tiles(std::size_t tokens, std::size_t parts) {
  TileShapes shapes;
  const auto rows = static_cast<std::uint8_t>(tokens_of_tile(tokens));
  for (std::size_t t = 0; t < kSumTiles; ++t) {
    shapes.rows[t] = rows;
    shapes.row_bytes[t] = kRowBytes;
  }
  for (std::size_t t = kSumTiles; t < kSumTiles + kInputTiles; ++t) {
    shapes.rows[t] = rows;
    shapes.row_bytes[t] = static_cast<std::uint16_t>(kInputGroup / parts);
  }
  for (std::size_t t = kSumTiles + kInputTiles; t < kSumTiles + kInputTiles + kCodeTiles; ++t) {
    shapes.rows[t] = static_cast<std::uint8_t>(kWordsOfGroup / parts);
    shapes.row_bytes[t] = kRowBytes;
  }
  // gcc 12's intrinsic says that it reads eight bytes, and so loses the others.
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

MOE_TILES void release_tiles() { _tile_release(); }

MOE_TILES void multiply_in_tiles(const TilePanel& panel, const TileInputs& x, std::size_t digits,
                                 std::size_t tokens, const TileSums& sums) {
  if (panel.parts == 1) {
    multiply_parts<1>(panel, x, digits, tokens, sums);
  } else {
    multiply_parts<2>(panel, x, digits, tokens, sums);
  }
}

}  // namespace moepack

#endif
