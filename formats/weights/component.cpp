#include "formats/weights/component.h"

namespace moepack {

std::string_view component_name(Component component) {
  return component_suffix(component).substr(1);
}

std::string_view component_suffix(Component component) {
  switch (component) {
    case Component::kCodes:
      return ".weight";
    case Component::kScales:
      return ".scales";
    case Component::kBiases:
      return ".biases";
    case Component::kZeros:
      return ".zeros";
    case Component::kGlobalScale:
      return ".global_scale";
    case Component::kOrder:
      return ".order";
    case Component::kOutputBias:
      return ".output_bias";
  }
  return ".weight";
}

std::optional<Component> take_component_suffix(std::string_view& name) {
  for (Component c : kAllComponents) {
    if (!name.ends_with(component_suffix(c))) continue;
    name.remove_suffix(component_suffix(c).size());
    return c;
  }
  return std::nullopt;
}

}  // namespace moepack
