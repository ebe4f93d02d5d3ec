#include "formats/weights/ggml_types.h"

#include <algorithm>
#include <array>

namespace moepack {
namespace {

constexpr std::uint32_t kFirstBlockFormat = 64;  // formats/weights/qformat_defs.h

struct ScalarRow {
  std::uint32_t id;
  DType storage;
};
constexpr std::array<ScalarRow, 8> kScalars{{{0, DType::kF32},
                                             {1, DType::kF16},
                                             {24, DType::kI8},
                                             {25, DType::kI16},
                                             {26, DType::kI32},
                                             {27, DType::kI64},
                                             {28, DType::kF64},
                                             {30, DType::kBf16}}};

// What activations are rounded to. Not written to files, but their sizes are ggml's.
struct ActivationRow {
  std::uint32_t id;
  std::uint32_t block_values;
  std::uint32_t block_bytes;
  std::string_view name;
};
constexpr std::array<ActivationRow, 2> kActivations{{{9, 32, 36, "Q8_1"}, {15, 256, 292, "Q8_K"}}};

// Types of ik_llama.cpp that ggml does not have.
struct PrivateRange {
  std::uint32_t first;
  std::uint32_t last;
  std::string_view name;
};
constexpr std::array<PrivateRange, 15> kPrivate{{{97, 99, "Q8_0_X4, Q8_1_X4 and Q8_2_X4"},
                                                 {133, 133, "Q6_0"},
                                                 {134, 134, "IQ1_BN"},
                                                 {135, 135, "IQ2_BN"},
                                                 {137, 141, "IQ2_K to IQ6_K"},
                                                 {144, 144, "IQ4_KS"},
                                                 {145, 145, "IQ2_KS"},
                                                 {146, 146, "IQ4_KSS"},
                                                 {147, 151, "forms of Q8_K"},
                                                 {152, 152, "IQ5_KS"},
                                                 {153, 155, "IQ2_KT to IQ4_KT"},
                                                 {156, 156, "IQ3_KS"},
                                                 {157, 157, "IQ2_KL"},
                                                 {158, 158, "IQ1_KT"},
                                                 {202, 399, "types with interleaved rows"}}};

// ---- big-endian ---------------------------------------------------------------------------------

// `count` fields of `width` bytes from byte `offset` of a block on.
struct WideFields {
  QFormatId format;
  std::uint32_t offset;
  std::uint32_t width;
  std::uint32_t count;
};
// MXFP4 and NVFP4 hold bytes alone.
constexpr std::array<WideFields, 19> kWideFields{{
    {QFormatId::kQ40, 0, 2, 1},   {QFormatId::kQ41, 0, 2, 2},   {QFormatId::kQ80, 0, 2, 1},
    {QFormatId::kQ2K, 80, 2, 2},  {QFormatId::kQ3K, 108, 2, 1}, {QFormatId::kQ4K, 0, 2, 2},
    {QFormatId::kQ5K, 0, 2, 2},   {QFormatId::kQ6K, 208, 2, 1}, {QFormatId::kIq2Xs, 0, 2, 33},
    {QFormatId::kIq2S, 0, 2, 1},  {QFormatId::kIq3S, 0, 2, 1},  {QFormatId::kIq1S, 0, 2, 1},
    {QFormatId::kIq1S, 34, 2, 8}, {QFormatId::kIq4Nl, 0, 2, 1}, {QFormatId::kIq4Xs, 0, 2, 2},
    {QFormatId::kTq10, 52, 2, 1}, {QFormatId::kTq20, 64, 2, 1}, {QFormatId::kQ10, 0, 2, 1},
    {QFormatId::kQ20, 0, 2, 1},
}};

void reverse_fields(std::byte* at, std::uint64_t width, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) std::reverse(at + i * width, at + (i + 1) * width);
}

bool is_opaque(const GgmlType& type) {
  if (!type.format.has_value()) return type.block_values > 1;
  constexpr std::array<QFormatId, 5> kOpaque{QFormatId::kQ50, QFormatId::kQ51, QFormatId::kIq1M,
                                             QFormatId::kIq2Xxs, QFormatId::kIq3Xxs};
  return std::find(kOpaque.begin(), kOpaque.end(), *type.format) != kOpaque.end();
}

}  // namespace

std::optional<GgmlType> find_ggml_type(std::uint32_t id) {
  for (const ScalarRow& row : kScalars) {
    if (row.id != id) continue;
    return GgmlType{.id = id,
                    .block_values = 1,
                    .block_bytes = dtype_bits(row.storage) / 8,
                    .format = plain_qformat(row.storage),
                    .storage = row.storage};
  }
  for (const ActivationRow& row : kActivations) {
    if (row.id != id) continue;
    return GgmlType{.id = id,
                    .block_values = row.block_values,
                    .block_bytes = row.block_bytes,
                    .format = std::nullopt,
                    .storage = DType::kU8};
  }
  for (const QFormatInfo& info : qformats()) {
    if (!is_ggml_block({.id = info.id})) continue;
    if (static_cast<std::uint32_t>(info.id) != std::uint64_t{kFirstBlockFormat} + id) continue;
    return GgmlType{.id = id,
                    .block_values = info.block_values,
                    .block_bytes = info.block_bytes,
                    .format = info.id,
                    .storage = info.storage};
  }
  return std::nullopt;
}

std::optional<GgmlType> ggml_type_of(QFormatId format) {
  const auto id = static_cast<std::uint32_t>(format);
  if (id >= MOE_QFORMAT_FIRST_OWN) return std::nullopt;
  if (id >= kFirstBlockFormat) return find_ggml_type(id - kFirstBlockFormat);
  for (const ScalarRow& row : kScalars) {
    if (plain_qformat(row.storage) == format) return find_ggml_type(row.id);
  }
  return std::nullopt;
}

std::optional<GgmlType> ggml_type_from_name(std::string_view name) {
  for (const ScalarRow& row : kScalars) {
    const auto type = find_ggml_type(row.id);
    if (ggml_type_name(*type) == name) return type;
  }
  for (const QFormatInfo& info : qformats()) {
    if (!is_ggml_block({.id = info.id})) continue;
    const auto type = ggml_type_of(info.id);
    if (ggml_type_name(*type) == name) return type;
  }
  return std::nullopt;
}

std::string ggml_type_name(const GgmlType& type) {
  for (const ActivationRow& row : kActivations) {
    if (row.id == type.id) return std::string(row.name);
  }
  std::string name(type.format.has_value() ? qformat_info(*type.format).name
                                           : dtype_name(type.storage));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return name;
}

std::string describe_unknown_ggml_type(std::uint32_t id) {
  const bool removed = id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38);
  if (removed) return "a type that ggml has removed";
  for (const PrivateRange& range : kPrivate) {
    if (id < range.first || id > range.last) continue;
    return "of ik_llama.cpp's own (" + std::string(range.name) + ")";
  }
  return "unknown here";
}

bool has_big_endian_form(const GgmlType& type) { return !is_opaque(type); }

bool ggml_big_to_little_endian(const GgmlType& type, std::byte* data, std::uint64_t bytes) {
  if (is_opaque(type)) return false;
  if (type.block_values == 1) {
    reverse_fields(data, type.block_bytes, bytes / type.block_bytes);
    return true;
  }
  for (std::uint64_t at = 0; at + type.block_bytes <= bytes; at += type.block_bytes) {
    for (const WideFields& fields : kWideFields) {
      if (fields.format == type.format) {
        reverse_fields(data + at + fields.offset, fields.width, fields.count);
      }
    }
  }
  return true;
}

}  // namespace moepack
