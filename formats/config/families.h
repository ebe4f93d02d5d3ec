// The families, each described in its file family_NAME.cpp.
#pragma once

#include <array>

#include "formats/config/architecture.h"

namespace moepack {

extern const Architecture kQwen35MoeFamily;
extern const Architecture kQwen3NextFamily;
extern const Architecture kQwen3MoeFamily;
extern const Architecture kOlmoeFamily;
extern const Architecture kMixtralFamily;
extern const Architecture kGlm4MoeFamily;
extern const Architecture kMinimaxM2Family;
extern const Architecture kGptOssFamily;
extern const Architecture kGemma4Family;
extern const Architecture kDeepseekV3Family;
extern const Architecture kKimiK2Family;

// One a line.
// clang-format off
inline constexpr std::array kFamilies{
    &kQwen35MoeFamily,
    &kQwen3NextFamily,
    &kQwen3MoeFamily,
    &kOlmoeFamily,
    &kMixtralFamily,
    &kGlm4MoeFamily,
    &kMinimaxM2Family,
    &kGptOssFamily,
    &kGemma4Family,
    &kDeepseekV3Family,
    &kKimiK2Family,
};
// clang-format on

}  // namespace moepack
