// The tokenizer files of a model directory, rebuilt from the tokenizer keys of a GGUF file as
// HuggingFace would have them: what llama.cpp's conversion made of them, undone.
//
// What that conversion threw away is not guessed: the files hold no lstrip, rstrip, single_word or
// normalized flags of added tokens, and a token with a special look (<|...|>) is special even where
// the original said otherwise.
#pragma once

#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/gguf/gguf_model.h"

namespace moepack {

struct NamedText {
  std::string name;  // relative to the model directory; '/' separates
  std::string text;
};

// In this order:
//   tokenizer.json         byte-level BPE, for load_tokenizer_json and HuggingFace's `tokenizers`
//   tokenizer_config.json  bos_token, eos_token, pad_token, add_bos_token
//   generation_config.json the ids of these; eos_token_id lists eos, eot and eom, and
//                          <|endoftext|> where that is a control token (llama.cpp ends text there)
//   chat_template.jinja    if the file has tokenizer.chat_template
//   additional_chat_templates/NAME.jinja  of tokenizer.chat_template.NAME; NAME has letters, digits
//                          and '_' only
// The same keys give the same bytes. Memory: 17 MiB for 250,000 tokens and as many merges; bounded
// by kMaxTokenizerKeyBytes, for templates by the limit of chat_template.jinja (companion_files.h)
// and, for tokenizer.json, by 64 MiB, beyond which it is kUnsupported.
//
// kUnsupported, naming the key: tokenizer.ggml.model other than "gpt2", an unknown
// tokenizer.ggml.pre, and what GgufVocabulary::read and gguf_pre_tokenizer refuse. kCorrupt: ids of
// special tokens beyond the vocabulary, templates that are not UTF-8, and what
// GgufVocabulary::read says. kNotFound: a needed key is missing.
Result<std::vector<NamedText>> gguf_tokenizer_files(const GgufModel& model);

}  // namespace moepack
