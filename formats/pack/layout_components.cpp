#include "formats/pack/layout_components.h"

#include <array>

#include "formats/pack/q3_keys.h"
#include "formats/weights/format_json.h"

namespace moepack {

std::vector<LayoutComponent> layout_components(const ExpertLayout& layout) {
  std::vector<LayoutComponent> components;
  for (Projection p : kAllProjections) {
    const ProjectionLayout& part = layout.of(p);
    const std::string name(projection_name(p));
    const std::array<std::uint64_t, 2> shape{part.rows, part.cols};
    for (Component c : stored_components(part.format)) {
      components.push_back({name + std::string(component_suffix(c)), part.offset_of(c),
                            part.bytes[c], component_dtype(part.format, c),
                            component_shape(part.format, c, shape),
                            c == Component::kCodes ? quant_name(part.format) : ""});
    }
  }
  return components;
}

}  // namespace moepack
