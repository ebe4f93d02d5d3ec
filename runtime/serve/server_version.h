// What the server calls itself.
#pragma once

namespace moepack {

constexpr const char* kServerVersion = MOEPACK_SERVER_VERSION;  // of the project, from CMake

}  // namespace moepack
