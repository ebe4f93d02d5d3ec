#include "runtime/prompt_origin.h"

#include <algorithm>
#include <cstring>

#include "formats/base/bytes.h"
#include "runtime/model/kernels.h"

namespace moepack {
namespace {

constexpr std::size_t kKernelsAt = 16;
constexpr std::size_t kKernelsBytes = 16;

}  // namespace

PromptOrigin origin_of(const Engine& engine) {
  return {.activations = engine.options().activations,
          .kernels = std::string(engine.kernels_bits()),
          .cut_tokens = engine.cut_tokens()};
}

std::optional<std::string> parse_kernels(std::span<const std::byte> field) {
  std::string name(reinterpret_cast<const char*>(field.data()), field.size());
  const std::size_t end = std::min(name.find('\0'), name.size());
  const bool is_padded = name.find_first_not_of('\0', end) == std::string::npos;
  name.resize(end);
  const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
  if (!is_padded || !is_name || name.empty()) return std::nullopt;
  if (name == cpu_level_name(CpuLevel::kAmx)) name = cpu_level_name(CpuLevel::kAvx512Vnni);
  if (name == cpu_level_name(CpuLevel::kAvxVnni)) name = cpu_level_name(CpuLevel::kAvx2);
  return name;
}

Result<PromptOrigin> load_origin(std::span<const std::byte> head, std::string_view file,
                                 std::string_view remedy) {
  const auto number = load_le<std::uint32_t>(head.data() + kOriginAt);
  const std::optional<ActivationType> type = activation_type_of(number);
  if (!type) {
    return unsupported(Where{.file = file, .offset = kOriginAt}, unknown_activation_type(number),
                       remedy);
  }
  const auto kernels = parse_kernels(head.subspan(kKernelsAt, kKernelsBytes));
  if (!kernels) {
    return corrupt(Where{.file = file, .offset = kKernelsAt}, "has no name of kernels", remedy);
  }
  return PromptOrigin{.activations = *type,
                      .kernels = *kernels,
                      .cut_tokens = load_le<std::uint64_t>(head.data() + kCutTokensAt)};
}

void store_origin(const PromptOrigin& origin, std::span<std::byte> head) {
  store_le(head.data() + kOriginAt, static_cast<std::uint32_t>(origin.activations));
  std::memcpy(head.data() + kKernelsAt, origin.kernels.data(),
              std::min(origin.kernels.size(), kKernelsBytes));
  store_le(head.data() + kCutTokensAt, origin.cut_tokens);
}

}  // namespace moepack
