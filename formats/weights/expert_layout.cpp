#include "formats/weights/expert_layout.h"

#include <algorithm>

#include "formats/base/bytes.h"
#include "formats/weights/row_order.h"

namespace moepack {

std::string_view projection_name(Projection projection) {
  switch (projection) {
    case Projection::kGate:
      return "gate_proj";
    case Projection::kUp:
      return "up_proj";
    default:
      return "down_proj";
  }
}

std::uint64_t ProjectionLayout::offset_of(Component component) const {
  std::uint64_t at = offset;
  for (Component c : kAllComponents) {
    if (c == component) break;
    at += bytes[c];
  }
  return at;
}

QMatrixView ExpertLayout::view(Projection p, const std::byte* record) const {
  const ProjectionLayout& part = of(p);
  QMatrixView view{.format = part.format, .rows = part.rows, .cols = part.cols};
  for (Component c : stored_components(part.format)) view.data[c] = record + part.offset_of(c);
  return view;
}

ExpertLayout in_order(ExpertLayout layout, RowOrder order) {
  for (ProjectionLayout& part : layout.projections) part.format = in_order(part.format, order);
  return layout;
}

bool is_in_panels(const ExpertLayout& layout) {
  return std::any_of(layout.projections.begin(), layout.projections.end(),
                     [](const auto& part) { return part.format.row_order == RowOrder::kPanels; });
}

std::optional<ExpertLayout> make_expert_layout(
    std::uint64_t hidden, std::uint64_t expert_width,
    const std::array<WeightFormat, kProjections>& formats) {
  ExpertLayout layout;
  std::uint64_t offset = 0;
  for (Projection p : kAllProjections) {
    const auto index = static_cast<std::size_t>(p);
    const bool is_down = p == Projection::kDown;
    const std::uint64_t rows = is_down ? hidden : expert_width;
    const std::uint64_t cols = is_down ? expert_width : hidden;
    const auto bytes = matrix_bytes(formats[index], rows, cols);
    if (!bytes.has_value()) return std::nullopt;
    layout.projections[index] = ProjectionLayout{
        .format = formats[index], .rows = rows, .cols = cols, .offset = offset, .bytes = *bytes};
    const auto next = checked_add(offset, bytes->total());
    if (!next.has_value()) return std::nullopt;
    offset = *next;
  }
  layout.record_bytes = offset;
  return layout;
}

}  // namespace moepack
