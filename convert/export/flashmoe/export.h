// A model directory becomes one that the flash-moe engines run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convert/export/flashmoe/export_plan.h"
#include "convert/export/flashmoe/export_tokenizer.h"
#include "convert/job/options.h"
#include "formats/base/status.h"

namespace moepack {

struct ExportOptions {
  std::filesystem::path model;    // as moepack convert writes it
  std::string pack;               // as open_model_dir takes it
  std::filesystem::path output;   // a directory that does not exist or is empty
  std::uint64_t split_bytes = 0;  // largest weight file; 0: one file
  SplitNames split_names = SplitNames::kWriter;
  VocabBytes vocab_bytes = VocabBytes::kRaw;
  bool tokenizer_only = false;  // `model` is then any directory with a tokenizer.json
  bool without_tokenizer = false;
  unsigned threads = 0;  // 0: one per processor
};

// A tensor that the engines take only in another encoding.
struct RoundedTensor {
  std::string name;
  std::string from;  // "bf16", "q8 g64"
  std::string to;
};

struct ExportReport {
  std::string model;
  std::string pack;  // directory name in the model; "" with tokenizer_only
  // Weights.
  std::uint32_t num_tensors = 0;
  std::vector<ExportChunk> weight_files;
  std::vector<RoundedTensor> rounded;
  std::vector<std::string> folded_norms;  // 1 + w, rounded to BF16
  // Experts.
  std::string expert_directory;
  std::uint32_t expert_bits = 0;
  std::uint64_t expert_size = 0;
  std::uint32_t linked_layers = 0;
  std::uint32_t written_layers = 0;
  // Tokenizer.
  bool has_tokenizer = false;
  std::uint64_t vocab_tokens = 0;
  std::uint64_t merges = 0;
  std::uint64_t added_tokens = 0;
  std::uint32_t vocab_entries = 0;
  std::uint32_t vocab_gaps = 0;

  std::vector<std::string> copied_files;
  std::vector<std::string> notes;  // what the user should know, one sentence each
  std::uint64_t bytes_read = 0;
  double seconds = 0;
};

// Writes the directory; model_weights.json is its last file. On an error everything that was
// written is removed again. kNotFound: no tokenizer.json, unless without_tokenizer; kUnsupported:
// something that the engines cannot represent.
Result<ExportReport> export_model(const ExportOptions& options, const ProgressCallback& progress);

}  // namespace moepack
