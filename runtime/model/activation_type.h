// In what the inputs of products are held.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

enum class ActivationType : std::uint8_t {
  kFloat32,
  // Bytes with a scale for every 32 of them (code_kernels.h), for matrices of quantized formats;
  // plain ones take float32.
  kInt8,
};

std::string_view activation_type_name(ActivationType type);  // "f32", "i8"
// The reverse; kInvalidArgument otherwise.
Result<ActivationType> parse_activation_type(std::string_view name);

}  // namespace moepack
