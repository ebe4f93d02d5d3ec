// The compute programs of the Vulkan backend as SPIR-V, compiled and packed at build time
// (CMakeLists.txt).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moepack {

// Words of the program of that name, e.g. "swiglu"; empty when there is none. From any thread.
std::vector<std::uint32_t> shader_code(std::string_view name);
// Whether there is one; cheap.
bool has_shader(std::string_view name);
// All names, sorted.
std::span<const std::string_view> shader_names();

}  // namespace moepack
