// The path of many rows: products in tiles, tokens grouped by expert, attention over blocks.
#pragma once

#include <memory>

#include "runtime/vulkan/path.h"

namespace moepack {

// `parts` are copied; what they name outlives the path.
std::unique_ptr<Path> make_prompt_path(const PathParts& parts);

}  // namespace moepack
