#include "convert/export/flashmoe/export_config.h"

#include <nlohmann/json.hpp>

#include "formats/base/json.h"

namespace moepack {

Result<std::string> export_config_text(const std::string& text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(nlohmann::json config, parse_json(text, Where{.file = file}));
  const nlohmann::json wanted{{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
  bool is_true = config.contains("quantization");
  // transformers reads quantization_config, MLX writes both.
  for (const char* key : {"quantization", "quantization_config"}) {
    if (!config.contains(key)) continue;
    nlohmann::json stated = config[key];
    if (stated.is_object() && !stated.contains("mode")) stated["mode"] = "affine";
    is_true = is_true && stated == wanted;
  }
  if (is_true) return text;
  config["quantization"] = wanted;
  if (config.contains("quantization_config")) config["quantization_config"] = wanted;
  return config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace moepack
