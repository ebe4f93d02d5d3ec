// How long a conversion will take, told by doing a little of it.
#pragma once

#include <cstddef>
#include <filesystem>

#include "convert/pack/plan.h"

namespace moepack {

// Converts experts from all over the model, for about two seconds, into an unnamed file in
// `directory` (which exists; nothing is left there), syncs it, and extrapolates by bytes read. 0
// when there is no room or no expert left to try it with.
Result<double> estimate_seconds(const ConvertPlan& plan, const std::filesystem::path& directory,
                                std::size_t threads);

}  // namespace moepack
