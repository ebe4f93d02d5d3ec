// The families, each described in its file family_NAME.cpp.
#pragma once

#include <array>

#include "formats/config/architecture.h"

namespace moepack {

extern const Architecture kQwen35MoeFamily;
extern const Architecture kQwen3NextFamily;
extern const Architecture kQwen3MoeFamily;
extern const Architecture kOlmoeFamily;
extern const Architecture kDeepseekV3Family;
extern const Architecture kKimiK2Family;

inline constexpr std::array kFamilies{
    &kQwen35MoeFamily,
    &kQwen3NextFamily,
    &kQwen3MoeFamily,
    &kOlmoeFamily,
    &kDeepseekV3Family,
    &kKimiK2Family,
};

}  // namespace moepack
