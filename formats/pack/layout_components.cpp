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
    components.push_back({name + ".weight", part.offset, part.bytes.weight,
                          qformat_info(part.format.id).storage, weight_shape(part.format, shape),
                          quant_name(part.format)});
    if (!is_affine(part.format)) continue;
    const auto groups = scales_shape(part.format, shape);
    components.push_back({name + ".scales", part.scales_offset(), part.bytes.scales,
                          part.format.scale_type, groups});
    components.push_back({name + ".biases", part.biases_offset(), part.bytes.biases,
                          part.format.scale_type, groups});
  }
  return components;
}

}  // namespace moepack
