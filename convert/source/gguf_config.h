// The configuration of a GGUF model, from its metadata, in the form of HuggingFace's config.json.
#pragma once

#include <string>

#include "convert/source/tensor_names.h"
#include "formats/base/status.h"
#include "formats/gguf/gguf_model.h"

namespace moepack {

// The architecture's table; kUnsupported for those that have none, naming the known ones.
Result<const Architecture*> gguf_architecture(const GgufModel& model);

// The text of a config.json that parse_model_config reads as this model; the same metadata give the
// same text. Keys are llama.cpp's, ARCHITECTURE.block_count and so on; blocks that predict further
// tokens (nextn_predict_layers, at the end) are not counted. The vocabulary is that of
// token_embd.weight, and without output.weight the embeddings are tied.
// kNotFound: a key is missing; kCorrupt: one contradicts another or the tensors; kUnsupported: one
// asks for another computation.
Result<std::string> gguf_config_text(const GgufModel& model, const Architecture& names);

}  // namespace moepack
