// Where the parts of one expert lie inside its record. The only such arithmetic in the project.
//
// A record is gate | up | down, each projection as codes | scales | biases (those components that
// its format has, in the order of Component), contiguous, without padding: the order and the bytes
// of the flash-moe engines.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/weights/qformat.h"

namespace moepack {

enum class Projection : std::uint8_t { kGate, kUp, kDown };
constexpr std::size_t kProjections = 3;
constexpr std::array<Projection, kProjections> kAllProjections{Projection::kGate, Projection::kUp,
                                                               Projection::kDown};
// "gate_proj", "up_proj", "down_proj".
std::string_view projection_name(Projection projection);

struct ProjectionLayout {
  WeightFormat format;
  std::uint64_t rows = 0;    // outputs: expert width for gate and up, hidden size for down
  std::uint64_t cols = 0;    // inputs: hidden size for gate and up, expert width for down
  std::uint64_t offset = 0;  // bytes from the start of the record to the first component
  MatrixBytes bytes;         // of the components, which follow each other

  // Bytes from the start of the record to a component.
  std::uint64_t offset_of(Component component) const;
  friend bool operator==(const ProjectionLayout&, const ProjectionLayout&) = default;
};

struct ExpertLayout {
  std::array<ProjectionLayout, kProjections> projections;
  std::uint64_t record_bytes = 0;

  const ProjectionLayout& of(Projection p) const {
    return projections[static_cast<std::size_t>(p)];
  }
  // A view of one projection inside a record that starts at `record`.
  QMatrixView view(Projection p, const std::byte* record) const;
  friend bool operator==(const ExpertLayout&, const ExpertLayout&) = default;
};

// The same record with its matrices in another order of rows, as far as their formats have it.
// Offsets and sizes stay as they are.
ExpertLayout in_order(ExpertLayout layout, RowOrder order);
// Whether any matrix of the record is in panels.
bool is_in_panels(const ExpertLayout& layout);

// nullopt when a format cannot hold its projection's shape.
std::optional<ExpertLayout> make_expert_layout(
    std::uint64_t hidden, std::uint64_t expert_width,
    const std::array<WeightFormat, kProjections>& formats);

}  // namespace moepack
