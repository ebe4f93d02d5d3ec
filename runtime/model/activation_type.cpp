#include "runtime/model/activation_type.h"

#include <array>

namespace moepack {
namespace {

constexpr std::array<std::string_view, 3> kNames{"f32", "i8", "i16"};  // by number

}  // namespace

std::string_view activation_type_name(ActivationType type) {
  return kNames[static_cast<std::size_t>(type)];
}

Result<ActivationType> parse_activation_type(std::string_view name) {
  for (std::uint32_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ActivationType>(i);
  }
  return invalid_argument("no kind of activations is called \"" + printable(name, 32) + "\"",
                          "use i8, i16 or f32");
}

std::optional<ActivationType> activation_type_of(std::uint32_t number) {
  if (number >= kNames.size()) return std::nullopt;
  return static_cast<ActivationType>(number);
}

std::string unknown_activation_type(std::uint32_t number) {
  std::string text = "has activations " + std::to_string(number) + ", known are";
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(i) + " (" + std::string(kNames[i]) + ")";
  }
  return text;
}

}  // namespace moepack
