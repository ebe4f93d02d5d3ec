// Names of files and directories that the flash-moe engines look for in a model directory, beside
// those that our own models have too.
#pragma once

namespace moepack {

constexpr const char* kTwoBitPackName = "packed_experts_2bit";
constexpr const char* kFlashMoeTokenizerName = "tokenizer.bin";
constexpr const char* kFlashMoeVocabName = "vocab.bin";

}  // namespace moepack
