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

// Tiles 0 and 1, and 2 and 3 of the unit behind, have the sums of high and low digits; 4 has
// inputs, 5 codes.
constexpr std::size_t kSumTiles = 4;
constexpr std::size_t kInputTile = 4;
constexpr std::size_t kCodeTile = 5;
static_assert(kSumTiles == 4 && kInputTile == 4 && kCodeTile == 5, "the macros below name them");

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
  std::int32_t of[kTileDigits][kRows][kLanes16];
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

template <std::size_t Parts>
MOE_TILES_INLINE Unit unit_at(const Tile& tile, std::size_t unit) {
  constexpr std::size_t kBytes = kWordsOfGroup / Parts * kRowBytes;
  return {static_cast<const std::uint8_t*>(tile.panel.codes) + unit * kBytes,
          tile.x[unit / Parts * kTileDigits].codes + unit % Parts * (kInputGroup / Parts)};
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

// Products of one digit with the unit's codes, and what was stored of the unit behind. Where
// another thread runs on the same core, the processor has hardly more tiles than these instructions
// name, so as few as possible have anything in them: a tile of zeros takes no place
// (docs/decisions.md, section 88).
#define MOE_MULTIPLY_DIGIT(digit, sums_tile, behind_tile)              \
  do {                                                                 \
    _tile_loadd(4, here.inputs + (digit) * sizeof(InputBlock), bytes); \
    MOE_MULTIPLY_TILE(sums_tile, 4, 5);                                \
    _tile_zero(4);                                                     \
    _tile_stored(behind_tile, behind.of[digit], kRowBytes);            \
    _tile_zero(behind_tile);                                           \
  } while (false)

template <bool HasBias>
MOE_TILES_INLINE void multiply_unit(std::size_t unit, const Unit& here, long bytes,
                                    GroupSums& behind) {
  _tile_loadd(5, here.codes, kRowBytes);
  if (unit % 2 == 0) {
    MOE_MULTIPLY_DIGIT(0, 0, 2);
    MOE_MULTIPLY_DIGIT(1, 1, 3);
  } else {
    MOE_MULTIPLY_DIGIT(0, 2, 0);
    MOE_MULTIPLY_DIGIT(1, 3, 1);
  }
  _tile_zero(5);
}

MOE_TILES_INLINE void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

MOE_TILES_INLINE void store_last(std::size_t unit, GroupSums& sums) {
  if (unit % 2 == 0) {
    _tile_stored(0, sums.of[0], kRowBytes);
    _tile_stored(1, sums.of[1], kRowBytes);
  } else {
    _tile_stored(2, sums.of[0], kRowBytes);
    _tile_stored(3, sums.of[1], kRowBytes);
  }
}

// A token's sums of a unit are added up in floats.
template <std::size_t Parts, bool HasBias>
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
    const __m512i high = _mm512_load_si512(integers + T * kLanes16);
    const __m512i low = _mm512_load_si512(integers + (kRows + T) * kLanes16);
    const __m512i words = _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
    const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(block.scale));
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(words), scale, sum);
    if constexpr (HasBias) {
      const float input = Parts == 1 ? block.sum : block.half_sums[part];
      sum = _mm512_fmadd_ps(biases, _mm512_set1_ps(input), sum);
    }
  }
};

// Calls f<T>() for T < tokens; tokens <= kRows, and that where IsFull.
template <bool IsFull, std::size_t T = 0, class F>
MOE_TILES_INLINE void for_tokens(std::size_t tokens, const F& f) {
  if constexpr (IsFull && T < kRows) {
    f.template operator()<T>();
    for_tokens<IsFull, T + 1>(tokens, f);
  } else if constexpr (T < kRows) {
    if (tokens >= T + 4) {
      f.template operator()<T>();
      f.template operator()<T + 1>();
      f.template operator()<T + 2>();
      f.template operator()<T + 3>();
      for_tokens<IsFull, T + 4>(tokens, f);
    } else {
      if (tokens > T) f.template operator()<T>();
      if (tokens > T + 1) f.template operator()<T + 1>();
      if (tokens > T + 2) f.template operator()<T + 2>();
    }
  }
}

// The last `tokens` of the tokens of a tile, all of them where it is full.
template <bool IsFull, std::size_t Parts, bool HasBias>
MOE_TILES void multiply_tile(const Tile& tile, std::size_t skipped, std::size_t tokens,
                             const PanelSums& at) {
  const TilePanel& panel = tile.panel;
  const std::size_t units = panel.groups * Parts;
  const auto bytes = static_cast<long>(tile.stride * sizeof(InputBlock));
  GroupSums integers[2];
  __m512 sums[kRows];
  for_tokens<IsFull>(tokens, [&]<std::size_t T>() MOE_TILES {
    sums[T] =
        at.from == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(at.from + T * at.from_stride);
  });
  // Sums are stored a unit behind their products, and added up another one behind.
  clear_sums();
  for (std::size_t step = 0; step < units + 2; ++step) {
    if (step < units) {
      multiply_unit<HasBias>(step, unit_at<Parts>(tile, step), bytes, integers[(step + 1) % 2]);
    } else if (step == units) {
      store_last(units - 1, integers[(units - 1) % 2]);
    }
    if (step < 2) continue;
    const std::size_t unit = step - 2;
    Adder<Parts, HasBias> adder{integers[unit % 2].of[0][skipped],
                                tile.x + skipped * tile.stride + unit / Parts * kTileDigits,
                                tile.stride,
                                unit % Parts,
                                _mm512_loadu_ps(panel.scales + unit * kLanes16),
                                _mm512_setzero_ps()};
    if constexpr (HasBias) adder.biases = _mm512_loadu_ps(panel.biases + unit * kLanes16);
    for_tokens<IsFull>(tokens, [&]<std::size_t T>() MOE_TILES { adder.template add<T>(sums[T]); });
  }
  for_tokens<IsFull>(tokens, [&]<std::size_t T>() MOE_TILES {
    _mm512_storeu_ps(at.to + T * at.to_stride, sums[T]);
  });
}

template <std::size_t Parts, bool HasBias>
MOE_TILES void multiply_tokens(const TilePanel& panel, const TileInputs& x, std::size_t tokens,
                               const PanelSums& at) {
  const std::size_t most = tokens_of_tile(tokens);
  for (std::size_t t = 0; t < tokens; t += most) {
    const std::size_t count = std::min(most, tokens - t);
    // The last tile may begin with tokens of the one before.
    const std::size_t skipped = most - count;
    const Tile tile{panel, x.first + (t - skipped) * x.stride, x.stride};
    PanelSums sums = at;
    if (sums.from != nullptr) sums.from += t * sums.from_stride;
    sums.to += t * sums.to_stride;
    if (count == kRows) {
      multiply_tile<true, Parts, HasBias>(tile, 0, kRows, sums);
    } else {
      multiply_tile<false, Parts, HasBias>(tile, skipped, count, sums);
    }
  }
}

template <std::size_t Parts>
MOE_TILES void multiply_parts(const TilePanel& panel, const TileInputs& x, std::size_t tokens,
                              const PanelSums& sums) {
  if (panel.biases == nullptr) {
    multiply_tokens<Parts, false>(panel, x, tokens, sums);
  } else {
    multiply_tokens<Parts, true>(panel, x, tokens, sums);
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
  shapes.rows[kInputTile] = rows;
  shapes.row_bytes[kInputTile] = static_cast<std::uint16_t>(kInputGroup / parts);
  shapes.rows[kCodeTile] = static_cast<std::uint8_t>(kWordsOfGroup / parts);
  shapes.row_bytes[kCodeTile] = kRowBytes;
  // gcc 12's intrinsic says that it reads eight bytes, and so loses the others.
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

MOE_TILES void release_tiles() { _tile_release(); }

MOE_TILES void multiply_in_tiles(const TilePanel& panel, const TileInputs& x, std::size_t tokens,
                                 const PanelSums& sums) {
  if (panel.parts == 1) {
    multiply_parts<1>(panel, x, tokens, sums);
  } else {
    multiply_parts<2>(panel, x, tokens, sums);
  }
}

}  // namespace moepack

#endif
