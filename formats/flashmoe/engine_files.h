// Names of files and directories that the flash-moe engines look for in a model directory and that
// are not in every model of ours.
#pragma once

namespace moepack {

constexpr const char* kTwoBitPackName = "packed_experts_2bit";
constexpr const char* kFlashMoeTokenizerName = "tokenizer.bin";
constexpr const char* kFlashMoeVocabName = "vocab.bin";

}  // namespace moepack
