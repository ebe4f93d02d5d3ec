// tokenizer.bin and vocab.bin, from which the flash-moe engines encode and decode text.
#pragma once

#include <cstdint>
#include <string>

#include "formats/base/status.h"
#include "formats/config/tokenizer_json.h"

namespace moepack {

// What vocab.bin holds of a token: the bytes it stands for, or its text in GPT-2's byte-level
// alphabet, from which the engine makes the bytes. The file does not say which.
enum class VocabBytes : std::uint8_t { kRaw, kBpe };

// The bytes of tokenizer.bin, all numbers little-endian:
//   "BPET", u32 version = 1, u32 n_vocab, u32 n_merges, u32 n_added
//   n_vocab  x {u32 id, u16 length, text in the byte-level alphabet}, by id
//   n_merges x {u16 length, left, u16 length, right}, the first applied first
//   n_added  x {u32 id, u16 length, literal text}, as tokenizer.json lists them
// The form cannot say how text is normalized and split. kUnsupported: a token longer than 65,535
// bytes, and a tokenizer over characters. `file` names tokenizer.json in errors.
Result<std::string> tokenizer_bin(const TokenizerSpec& spec, const std::string& file);

struct VocabFile {
  std::string bytes;
  std::uint32_t entries = 0;  // highest id + 1
  std::uint32_t gaps = 0;     // ids that stand for nothing
};

// vocab.bin: u32 entries, u32 highest id, then for every id from 0 {u16 length, bytes}, length 0
// for ids that stand for nothing. Added tokens are in it as they read. kCorrupt: two texts with one
// id, ids far beyond the number of tokens.
Result<VocabFile> vocab_bin(const TokenizerSpec& spec, VocabBytes form, const std::string& file);

}  // namespace moepack
