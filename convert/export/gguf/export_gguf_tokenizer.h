// The tokenizer of a model directory as the keys of a GGUF file: the inverse of gguf_tokenizer.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/gguf/gguf_writer.h"

namespace moepack {

// Reads tokenizer.json and, where they are there, tokenizer_config.json, generation_config.json and
// chat_template.jinja of `model`; adds tokenizer.ggml.model, .pre, .tokens (one an id of the
// vocabulary; "[PADn]" where there is none), .token_type, .merges, the ids of special tokens, and
// tokenizer.chat_template. An added token is a control token where it is special, or looks it
// (<|...|>), as llama.cpp's converter has it. `notes`: what gets lost, one sentence each.
//
// kNotFound: no tokenizer.json. kUnsupported: text is normalized or split by rules that no
// tokenizer.ggml.pre stands for. kCorrupt: ids beyond the vocabulary or given twice, special tokens
// that there are not.
Status add_tokenizer_keys(const std::filesystem::path& model, const ModelConfig& config,
                          GgufHead& head, std::vector<std::string>& notes);

}  // namespace moepack
