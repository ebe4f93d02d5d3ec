// How a model's makers would have its tokens drawn.
#pragma once

#include <filesystem>

#include "formats/base/status.h"
#include "runtime/sampler.h"

namespace moepack {

// What MODEL/generation_config.json says; SamplerOptions' own where it says nothing. The errors of
// parse_generation_defaults.
Result<SamplerOptions> model_sampling(const std::filesystem::path& model);

}  // namespace moepack
