// config.json for the flash-moe engines.
#pragma once

#include <string>

#include "formats/base/status.h"

namespace moepack {

// The text of the source's config.json with a `quantization` that is true of the exported weights:
// affine, 4 bits, groups of 64, no exceptions. Texts that already say so stay as they are, byte for
// byte; in others keys are sorted. `file` names it in errors.
Result<std::string> export_config_text(const std::string& text, const std::string& file);

}  // namespace moepack
