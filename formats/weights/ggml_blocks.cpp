#include "formats/weights/ggml_blocks.h"

#include <array>
#include <cassert>

#include "formats/weights/float_blocks.h"
#include "formats/weights/ggml_block_decoders.h"

namespace moepack {
namespace {

struct DecoderRow {
  QFormatId id;
  GgmlBlockDecoder decode;
};

constexpr std::array<DecoderRow, 28> kDecoders{{
    {QFormatId::kQ40, ggml::decode_q4_0},       {QFormatId::kQ41, ggml::decode_q4_1},
    {QFormatId::kQ50, ggml::decode_q5_0},       {QFormatId::kQ51, ggml::decode_q5_1},
    {QFormatId::kQ80, ggml::decode_q8_0},       {QFormatId::kQ2K, ggml::decode_q2_k},
    {QFormatId::kQ3K, ggml::decode_q3_k},       {QFormatId::kQ4K, ggml::decode_q4_k},
    {QFormatId::kQ5K, ggml::decode_q5_k},       {QFormatId::kQ6K, ggml::decode_q6_k},
    {QFormatId::kIq2Xxs, ggml::decode_iq2_xxs}, {QFormatId::kIq2Xs, ggml::decode_iq2_xs},
    {QFormatId::kIq3Xxs, ggml::decode_iq3_xxs}, {QFormatId::kIq1S, ggml::decode_iq1_s},
    {QFormatId::kIq4Nl, ggml::decode_iq4_nl},   {QFormatId::kIq3S, ggml::decode_iq3_s},
    {QFormatId::kIq2S, ggml::decode_iq2_s},     {QFormatId::kIq4Xs, ggml::decode_iq4_xs},
    {QFormatId::kIq1M, ggml::decode_iq1_m},     {QFormatId::kTq10, ggml::decode_tq1_0},
    {QFormatId::kTq20, ggml::decode_tq2_0},     {QFormatId::kMxfp4, ggml::decode_mxfp4},
    {QFormatId::kNvfp4, ggml::decode_nvfp4},    {QFormatId::kQ10, ggml::decode_q1_0},
    {QFormatId::kQ20, ggml::decode_q2_0},       {QFormatId::kF8E4M3, decode_f8_e4m3},
    {QFormatId::kMxfp8, decode_mxfp8},          {QFormatId::kNvfp4Scaled, decode_nvfp4_scaled},
}};

}  // namespace

GgmlBlockDecoder block_decoder(QFormatId id) {
  for (const DecoderRow& row : kDecoders) {
    if (row.id == id) return row.decode;
  }
  return nullptr;
}

void decode_block_columns(const QMatrixView& matrix, std::uint64_t row, std::uint64_t first,
                          std::span<float> out) {
  const QFormatInfo& info = qformat_info(matrix.format.id);
  assert(first % info.block_values == 0 && out.size() % info.block_values == 0);
  const GgmlBlockDecoder decode = block_decoder(info.id);
  const std::byte* block =
      matrix.codes() + (row * matrix.cols + first) / info.block_values * info.block_bytes;
  for (std::size_t i = 0; i < out.size(); i += info.block_values, block += info.block_bytes) {
    decode(block, out.data() + i);
  }
}

}  // namespace moepack
