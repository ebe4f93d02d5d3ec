// How the states in a file of a prompt or a slot were computed. Both heads have it at one place
// (docs/sequence-format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/model/activation_type.h"

namespace moepack {

// As far as the states' bits depend on it.
struct PromptOrigin {
  ActivationType activations = ActivationType::kFloat32;
  std::string kernels;           // Engine::kernels_bits(): at most 16 of a-z and 0-9
  std::uint64_t cut_tokens = 1;  // Engine::cut_tokens()

  bool operator==(const PromptOrigin&) const = default;
};

// Of states that `engine` computes.
PromptOrigin origin_of(const Engine& engine);

// Where it stands in a head. Behind it comes the number of tokens.
constexpr std::size_t kOriginAt = 12;
constexpr std::size_t kCutTokensAt = 32;
constexpr std::size_t kBehindOrigin = 40;

// The name of kernels in such a file, zeros behind it: whose bits (Kernels::bits) the states have,
// also where the file, as earlier ones, names a level with the bits of another. nullopt: no name.
std::optional<std::string> parse_kernels(std::span<const std::byte> field);

// Of a head with at least kBehindOrigin bytes. Any bytes may come: kUnsupported for unknown
// activations, kCorrupt for what is no name of kernels. cut_tokens may be anything. `file` and
// `remedy` stand in messages.
Result<PromptOrigin> load_origin(std::span<const std::byte> head, std::string_view file,
                                 std::string_view remedy);
void store_origin(const PromptOrigin& origin, std::span<std::byte> head);

}  // namespace moepack
