// The configuration of a model directory as the keys of a GGUF file: the inverse of gguf_config.h.
#pragma once

#include "convert/source/tensor_names.h"
#include "formats/base/status.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/model_dir.h"

namespace moepack {

// general.architecture, general.name and ARCHITECTURE.block_count and so on, as llama.cpp's
// src/models/qwen35moe.cpp and qwen3next.cpp ask for them. general.file_type says what most weights
// of `head` are stored in, so its tensors come first.
// kUnsupported: something that llama.cpp computes in another way.
Status add_model_keys(const ModelDir& model, const Architecture& names, GgufHead& head);

}  // namespace moepack
