#include "formats/base/dtype.h"

#include <array>
#include <cassert>

#include "formats/base/bytes.h"

namespace moepack {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::uint32_t bits;
};

constexpr std::array<DTypeRow, 22> kDTypes{{
    {DType::kBool, "BOOL", 8},
    {DType::kF4, "F4", 4},
    {DType::kF6E2M3, "F6_E2M3", 6},
    {DType::kF6E3M2, "F6_E3M2", 6},
    {DType::kU8, "U8", 8},
    {DType::kI8, "I8", 8},
    {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E4M3, "F8_E4M3", 8},
    {DType::kF8E8M0, "F8_E8M0", 8},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {DType::kI16, "I16", 16},
    {DType::kU16, "U16", 16},
    {DType::kF16, "F16", 16},
    {DType::kBf16, "BF16", 16},
    {DType::kI32, "I32", 32},
    {DType::kU32, "U32", 32},
    {DType::kF32, "F32", 32},
    {DType::kC64, "C64", 64},
    {DType::kF64, "F64", 64},
    {DType::kI64, "I64", 64},
    {DType::kU64, "U64", 64},
}};

const DTypeRow& row_of(DType dtype) { return kDTypes.at(static_cast<std::size_t>(dtype)); }

}  // namespace

std::string_view dtype_name(DType dtype) { return row_of(dtype).name; }

std::uint32_t dtype_bits(DType dtype) { return row_of(dtype).bits; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

float load_plain_float(DType dtype, const void* at) {
  switch (dtype) {
    case DType::kF32:
      return load_le<float>(at);
    case DType::kF16:
      return f16_to_f32(load_le<std::uint16_t>(at));
    default:
      assert(dtype == DType::kBf16);
      return bf16_to_f32(load_le<std::uint16_t>(at));
  }
}

}  // namespace moepack
