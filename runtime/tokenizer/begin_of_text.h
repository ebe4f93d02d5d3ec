// What stands before a text that begins a sequence: often one token, often none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/tokenizer_json.h"

namespace moepack {

// The ids that the post-processor's template puts before a text, as HuggingFace's `tokenizers`
// does. Where it has no template, as in files made from GGUF, bos_token of `config`, a
// tokenizer_config.json that may be absent or not even named, if its add_bos_token is true.
// kCorrupt where a token is not in the vocabulary; `where`: the file that `spec` was read from.
Result<std::vector<std::int32_t>> begin_of_text_ids(const TokenizerSpec& spec, const Where& where,
                                                    const std::filesystem::path& config);

}  // namespace moepack
