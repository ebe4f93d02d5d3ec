// The families, each described in its file family_NAME.cpp.
#pragma once

#include <array>

#include "formats/config/architecture.h"

namespace moepack {

extern const Architecture kQwen35MoeFamily;
extern const Architecture kQwen3NextFamily;

inline constexpr std::array<const Architecture*, 2> kFamilies{&kQwen35MoeFamily, &kQwen3NextFamily};

}  // namespace moepack
