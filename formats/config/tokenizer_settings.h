// What a tokenizer.json says beside its vocabulary and merges.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "formats/base/status.h"
#include "formats/config/tokenizer_json.h"

namespace moepack {

// `root` is the file's object, without model.vocab and model.merges. Both fill their part of
// `spec`, the model's first; errors as parse_tokenizer_json, `file` names the file in them.
Status read_tokenizer_model(const nlohmann::json& root, const std::string& file,
                            TokenizerSpec& spec);
Status read_tokenizer_settings(const nlohmann::json& root, const std::string& file,
                               TokenizerSpec& spec);

}  // namespace moepack
