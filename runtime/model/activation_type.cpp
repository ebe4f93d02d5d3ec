#include "runtime/model/activation_type.h"

namespace moepack {

std::string_view activation_type_name(ActivationType type) {
  return type == ActivationType::kInt8 ? "i8" : "f32";
}

Result<ActivationType> parse_activation_type(std::string_view name) {
  if (name == "f32") return ActivationType::kFloat32;
  if (name == "i8") return ActivationType::kInt8;
  return invalid_argument("no kind of activations is called \"" + printable(name, 32) + "\"",
                          "use i8 or f32");
}

}  // namespace moepack
