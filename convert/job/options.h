// What the user asks of a conversion, and how it reports its progress.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "formats/config/companion_files.h"
#include "formats/pack/pack_manifest.h"
#include "formats/weights/qformat.h"

namespace moepack {

struct ConvertOptions {
  std::filesystem::path source;  // anything ModelSource::open takes
  std::filesystem::path output;  // a directory that does not exist, is empty, or holds nothing but
                                 // an interrupted conversion
  // nullopt: as in the source; else bf16 or an affine format.
  std::optional<QFormatId> expert_format;
  std::optional<QFormatId> resident_format;
  std::uint32_t group_size = 64;               // of affine targets
  RowOrder row_order = RowOrder::kRows;        // of the experts' matrices whose formats have it
  std::uint64_t page_size = kDefaultPageSize;  // a power of two
  unsigned threads = 0;                        // 0: one per processor

  std::vector<std::uint32_t> layers;  // convert only these now; empty: all that are left
  bool restart = false;               // drop an interrupted conversion of something else
  // Remove each shard of the source once every tensor in it is packed, synced and read back.
  bool reclaim = false;
  // Write the tensors that predict further tokens too, as they are (prediction.bin).
  bool keep_prediction = false;
  TokenizerCheck tokenizer = {};  // of tokenizer.json; empty: it is only parsed
};

struct ConvertProgress {
  std::uint64_t bytes_done = 0;  // of the source
  std::uint64_t bytes_total = 0;
  std::uint32_t layers_done = 0;  // packed experts, complete on disk
  std::uint32_t layers_total = 0;
};

// Called from the converting threads, one call at a time; may be empty.
using ProgressCallback = std::function<void(const ConvertProgress&)>;

}  // namespace moepack
