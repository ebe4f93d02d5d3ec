// The named parts that a weight matrix consists of, and arrays that hold one thing for each of
// them: its bytes, its place in a file, its tensor in a checkpoint.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace moepack {

// In the order in which an expert's record holds them. A stored format or a source encoding has
// some of them; only kCodes is in all.
enum class Component : std::uint8_t {
  kCodes,        // plain values, packed codes or blocks
  kScales,       // factors of groups of codes
  kBiases,       // what is added to code * scale
  kZeros,        // codes that mean zero, subtracted before scaling
  kGlobalScale,  // one factor of the whole matrix
  kOrder,        // for each input the group that it belongs to (GPTQ's g_idx)
  kOutputBias,   // what is added to the outputs: y = W x + b
};
constexpr std::size_t kComponents = 7;
constexpr std::array<Component, kComponents> kAllComponents{
    Component::kCodes,       Component::kScales, Component::kBiases,    Component::kZeros,
    Component::kGlobalScale, Component::kOrder,  Component::kOutputBias};

// As in manifests and in the names of tensors, where NAME.weight is the codes of NAME: "weight",
// "scales", "biases", "zeros", "global_scale", "order", "output_bias".
std::string_view component_name(Component component);
// The same behind a dot: ".weight".
std::string_view component_suffix(Component component);
// Removes such a suffix from `name`; nullopt when it ends in none.
std::optional<Component> take_component_suffix(std::string_view& name);

// One T for each component; those that a matrix lacks hold T{}.
template <typename T>
struct Components {
  std::array<T, kComponents> values{};

  T& operator[](Component c) { return values[static_cast<std::size_t>(c)]; }
  const T& operator[](Component c) const { return values[static_cast<std::size_t>(c)]; }
  // Those that every matrix has.
  T& codes() { return (*this)[Component::kCodes]; }
  const T& codes() const { return (*this)[Component::kCodes]; }
  auto begin() { return values.begin(); }
  auto begin() const { return values.begin(); }
  auto end() { return values.end(); }
  auto end() const { return values.end(); }
  friend bool operator==(const Components&, const Components&) = default;
};

// The components of a matrix whose parameters are at most scales and biases.
template <typename T>
Components<T> affine_components(T codes, T scales = {}, T biases = {}) {
  Components<T> out;
  out[Component::kCodes] = std::move(codes);
  out[Component::kScales] = std::move(scales);
  out[Component::kBiases] = std::move(biases);
  return out;
}

}  // namespace moepack
