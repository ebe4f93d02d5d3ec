#include "runtime/service/model_sampling.h"

#include "formats/config/companion_files.h"
#include "formats/config/generation_config.h"

namespace moepack {

Result<SamplerOptions> model_sampling(const std::filesystem::path& model) {
  SamplerOptions options;
  MOE_ASSIGN_OR_RETURN(const auto text, read_companion(model, kGenerationConfigName));
  if (!text.has_value()) return options;
  MOE_ASSIGN_OR_RETURN(const GenerationDefaults defaults,
                       parse_generation_defaults(*text, (model / kGenerationConfigName).string()));
  if (defaults.temperature) options.temperature = static_cast<float>(*defaults.temperature);
  if (defaults.top_p) options.top_p = static_cast<float>(*defaults.top_p);
  if (defaults.min_p) options.min_p = static_cast<float>(*defaults.min_p);
  if (defaults.top_k) options.top_k = static_cast<std::int32_t>(*defaults.top_k);
  return options;
}

}  // namespace moepack
