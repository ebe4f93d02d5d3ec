#include "runtime/vulkan/device_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "formats/weights/row_order.h"

namespace moepack {
namespace {

// Larger units first, so that what follows is aligned for its own loads. The offsets are those of
// formats/weights/ggml_*_blocks.cpp and float_blocks.h.
constexpr std::array<BlockPart, 2> kQ40Parts{{{2, 16}, {0, 2}}};  // and those of IQ4_NL, Q1_0, Q2_0
constexpr std::array<BlockPart, 2> kQ41Parts{{{4, 16}, {0, 4}}};
constexpr std::array<BlockPart, 3> kQ50Parts{{{6, 16}, {2, 4}, {0, 2}}};
constexpr std::array<BlockPart, 3> kQ51Parts{{{8, 16}, {4, 4}, {0, 4}}};
constexpr std::array<BlockPart, 2> kQ80Parts{{{2, 32}, {0, 2}}};
constexpr std::array<BlockPart, 3> kQ2KParts{{{16, 64}, {0, 16}, {80, 4}}};
constexpr std::array<BlockPart, 4> kQ3KParts{{{32, 64}, {0, 32}, {96, 12}, {108, 2}}};
constexpr std::array<BlockPart, 2> kQ4KParts{{{16, 128}, {0, 16}}};
constexpr std::array<BlockPart, 3> kQ5KParts{{{48, 128}, {16, 32}, {0, 16}}};
constexpr std::array<BlockPart, 4> kQ6KParts{{{0, 128}, {128, 64}, {192, 16}, {208, 2}}};
constexpr std::array<BlockPart, 2> kIq2XxsParts{{{2, 64}, {0, 2}}};
constexpr std::array<BlockPart, 3> kIq2XsParts{{{2, 64}, {66, 8}, {0, 2}}};
constexpr std::array<BlockPart, 5> kIq2SParts{{{2, 32}, {34, 32}, {66, 8}, {74, 8}, {0, 2}}};
constexpr std::array<BlockPart, 3> kIq3XxsParts{{{2, 64}, {66, 32}, {0, 2}}};
constexpr std::array<BlockPart, 5> kIq3SParts{{{2, 64}, {74, 32}, {66, 8}, {106, 4}, {0, 2}}};
constexpr std::array<BlockPart, 3> kIq1SParts{{{2, 32}, {34, 16}, {0, 2}}};
constexpr std::array<BlockPart, 3> kIq1MParts{{{0, 32}, {32, 16}, {48, 8}}};
constexpr std::array<BlockPart, 2> kIq4XsParts{{{8, 128}, {0, 8}}};
constexpr std::array<BlockPart, 2> kMxfp4Parts{{{1, 16}, {0, 1}}};
constexpr std::array<BlockPart, 2> kMxfp8Parts{{{1, 32}, {0, 1}}};
constexpr std::array<BlockPart, 2> kNvfp4Parts{{{4, 32}, {0, 4}}};
constexpr std::array<BlockPart, 3> kNvfp4ScaledParts{{{12, 64}, {4, 8}, {0, 4}}};
constexpr std::array<BlockPart, 2> kF8Parts{{{4, 128}, {0, 4}}};
constexpr std::array<BlockPart, 2> kTq10Parts{{{0, 52}, {52, 2}}};
constexpr std::array<BlockPart, 2> kTq20Parts{{{0, 64}, {64, 2}}};

// One part of `count` blocks.
template <std::size_t Bytes>
void gather(const std::byte* in, std::size_t block_bytes, std::size_t count, std::byte* out) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(out + i * Bytes, in + i * block_bytes, Bytes);
  }
}

// With a copy whose size is known to the compiler.
void gather_part(std::uint32_t bytes, const std::byte* in, std::size_t block_bytes,
                 std::size_t count, std::byte* out) {
  switch (bytes) {
    case 1:
      return gather<1>(in, block_bytes, count, out);
    case 2:
      return gather<2>(in, block_bytes, count, out);
    case 4:
      return gather<4>(in, block_bytes, count, out);
    case 8:
      return gather<8>(in, block_bytes, count, out);
    case 12:
      return gather<12>(in, block_bytes, count, out);
    case 16:
      return gather<16>(in, block_bytes, count, out);
    case 32:
      return gather<32>(in, block_bytes, count, out);
    case 52:
      return gather<52>(in, block_bytes, count, out);
    case 64:
      return gather<64>(in, block_bytes, count, out);
    case 128:
      return gather<128>(in, block_bytes, count, out);
    default:
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(out + i * bytes, in + i * block_bytes, bytes);
      }
  }
}

void take_apart(QFormatId format, std::uint64_t rows, std::uint64_t row_bytes, const std::byte* in,
                std::byte* out) {
  const std::span<const BlockPart> parts = block_parts(format);
  const std::size_t block_bytes = qformat_info(format).block_bytes;
  const std::size_t blocks = row_bytes / block_bytes;
  for (std::uint64_t row = 0; row < rows; ++row, in += row_bytes) {
    for (const BlockPart& part : parts) {
      gather_part(part.bytes, in + part.offset, block_bytes, blocks, out);
      out += blocks * part.bytes;
    }
  }
}

}  // namespace

std::span<const BlockPart> block_parts(QFormatId format) {
  switch (format) {
    case QFormatId::kQ40:
    case QFormatId::kIq4Nl:
    case QFormatId::kQ10:
    case QFormatId::kQ20:
      return kQ40Parts;
    case QFormatId::kQ41:
      return kQ41Parts;
    case QFormatId::kQ50:
      return kQ50Parts;
    case QFormatId::kQ51:
      return kQ51Parts;
    case QFormatId::kQ80:
      return kQ80Parts;
    case QFormatId::kQ2K:
      return kQ2KParts;
    case QFormatId::kQ3K:
      return kQ3KParts;
    case QFormatId::kQ4K:
      return kQ4KParts;
    case QFormatId::kQ5K:
      return kQ5KParts;
    case QFormatId::kQ6K:
      return kQ6KParts;
    case QFormatId::kIq1S:
      return kIq1SParts;
    case QFormatId::kIq1M:
      return kIq1MParts;
    case QFormatId::kIq2Xxs:
      return kIq2XxsParts;
    case QFormatId::kIq2Xs:
      return kIq2XsParts;
    case QFormatId::kIq2S:
      return kIq2SParts;
    case QFormatId::kIq3Xxs:
      return kIq3XxsParts;
    case QFormatId::kIq3S:
      return kIq3SParts;
    case QFormatId::kIq4Xs:
      return kIq4XsParts;
    case QFormatId::kMxfp4:
      return kMxfp4Parts;
    case QFormatId::kMxfp8:
      return kMxfp8Parts;
    case QFormatId::kNvfp4:
      return kNvfp4Parts;
    case QFormatId::kNvfp4Scaled:
      return kNvfp4ScaledParts;
    case QFormatId::kF8E4M3:
      return kF8Parts;
    case QFormatId::kTq10:
      return kTq10Parts;
    case QFormatId::kTq20:
      return kTq20Parts;
    default:
      return {};
  }
}

bool differs_on_device(const WeightFormat& format) {
  return format.row_order == RowOrder::kPanels || !block_parts(format.id).empty();
}

std::uint64_t rows_of_piece(const WeightFormat& format, std::uint64_t row_bytes,
                            std::uint64_t bytes) {
  const std::uint64_t together = format.row_order == RowOrder::kPanels ? kPanelRows : 1;
  return std::max<std::uint64_t>(1, bytes / row_bytes / together) * together;
}

void to_device_rows(const WeightFormat& format, Component component, std::uint64_t rows,
                    std::uint64_t row_bytes, const std::byte* in, std::byte* out) {
  const bool has_parts = !block_parts(format.id).empty();
  if (format.row_order != RowOrder::kPanels) {
    if (has_parts) {
      take_apart(format.id, rows, row_bytes, in, out);
    } else {
      std::memcpy(out, in, rows * row_bytes);
    }
    return;
  }
  if (!has_parts) return panels_to_rows(format, component, rows, row_bytes, in, out);
  std::vector<std::byte> panel(kPanelRows * row_bytes);
  for (std::uint64_t first = 0; first < rows; first += kPanelRows) {
    const std::uint64_t count = std::min<std::uint64_t>(kPanelRows, rows - first);
    panels_to_rows(format, component, count, row_bytes, in + first * row_bytes, panel.data());
    take_apart(format.id, count, row_bytes, panel.data(), out + first * row_bytes);
  }
}

}  // namespace moepack
