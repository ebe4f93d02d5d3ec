// In what the inputs of products are held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

// Their numbers are written into files (docs/sequence-format.md).
enum class ActivationType : std::uint8_t {
  kFloat32 = 0,
  // Bytes with a scale for every 32 of them (code_kernels.h), for matrices of quantized formats;
  // plain ones take float32.
  kInt8 = 1,
  // The same with two bytes, the high and the low digit of a code: nearly 16 bits.
  kInt16 = 2,
};

// Bytes of an input; 0 of floats.
constexpr std::size_t input_digits(ActivationType type) { return static_cast<std::size_t>(type); }

std::string_view activation_type_name(ActivationType type);  // "f32", "i8", "i16"
// The reverse; kInvalidArgument otherwise.
Result<ActivationType> parse_activation_type(std::string_view name);

// The type that a file gives by its number; nullopt where none has it.
std::optional<ActivationType> activation_type_of(std::uint32_t number);
// "has activations N, known are 0 (f32), …": what is wrong with a file whose number has none.
std::string unknown_activation_type(std::uint32_t number);

}  // namespace moepack
