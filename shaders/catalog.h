// The compute programs of the Vulkan backend as SPIR-V, compiled at build time (CMakeLists.txt).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace moepack {

// Words of the program of that name, e.g. "scale"; empty when there is none. They live as long as
// the program. From any thread.
std::span<const std::uint32_t> shader_code(std::string_view name);
// All names, sorted.
std::span<const std::string_view> shader_names();

}  // namespace moepack
