// What `tokenizer.ggml.pre` stands for: how the published tokenizer.json normalizes text and cuts
// it into the pieces that BPE works on. The key names a tokenizer that llama.cpp knows, not a rule.
//
// Source of each row: the patterns that llama.cpp's src/llama-vocab.cpp keeps beside its own as
// those of the original tokenizer.json, and programs that compare a published tokenizer.json with
// them before use. llama.cpp itself does not normalize; HuggingFace does where a row says so.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

struct GgufPreTokenizer {
  std::string_view name;  // value of the key
  bool nfc = false;       // the normalizer is NFC; else there is none
  // Split steps in order, each with behavior Isolated; behind them ByteLevel without its own
  // pattern.
  std::span<const std::string_view> patterns;
};

// kUnsupported, naming the known ones: no row has this name. `where` names the file and the value's
// offset.
Result<GgufPreTokenizer> gguf_pre_tokenizer(std::string_view name, const Where& where);
// The row that cuts text by these patterns; nullopt: none. What normalizes is not asked for.
std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(std::span<const std::string_view> patterns);
std::string gguf_pre_tokenizer_names();  // "a, b"

}  // namespace moepack
