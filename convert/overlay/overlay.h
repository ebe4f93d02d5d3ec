// Tensors of a GGUF file are taken over into a model directory unchanged: its experts as one more
// pack, matrices of its residents as overlays (formats/pack/resident_overlay.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "formats/base/status.h"
#include "formats/pack/resident_overlay.h"

namespace moepack {

// PackSource::method of such packs: their source is not that of the model they lie in.
constexpr const char* kOverlayMethod = "overlay";

struct OverlayOptions {
  std::filesystem::path model;
  std::filesystem::path gguf;  // a file, or any part of a split one
  bool experts = false;
  std::vector<OverlayGroup> groups;
  std::string name = "Q3";                     // of the pack: packed_experts_NAME
  std::uint64_t page_size = kDefaultPageSize;  // of the pack; a power of two
  RowOrder row_order = RowOrder::kRows;        // of the pack
  bool replace = false;                        // overlays that are there already
  bool restart = false;                        // drop an interrupted pack of something else
  unsigned threads = 0;                        // 0: one per processor
};

struct WrittenOverlay {
  std::string file;  // "gguf/full_attn_q8_0.bin"
  std::string group;
  std::string types;  // "q6_k, q8_0"
  std::uint64_t matrices = 0;
  std::uint64_t bytes = 0;
  bool kept = false;  // was there already, from the same file
};

struct OverlayReport {
  std::string source;
  std::vector<WrittenOverlay> overlays;
  std::string pack;  // directory; "" without experts
  std::string pack_formats;
  std::uint64_t pack_bytes = 0;
  bool is_pack_kept = false;    // was there already, whole, from the same file
  bool is_engine_pack = false;  // the flash-moe engines can run it
  std::uint32_t num_layers = 0;
  std::size_t layers_resumed = 0;
  std::uint64_t needed_bytes = 0;
  std::optional<std::uint64_t> free_bytes;  // nullopt: unknown
  std::vector<std::string> notes;
  std::size_t threads = 0;
  double seconds = 0;
};

// Checks everything and writes nothing.
Result<OverlayReport> plan_overlay(const OverlayOptions& options);

// Writes the overlays first, which appear together and complete, or not at all. Then it writes the
// pack layer by layer; the same call continues an interrupted one. Memory: a few mebibytes a
// thread. kInvalidArgument: the file is of another model, or files that would be written are there
// already.
Result<OverlayReport> overlay_model(const OverlayOptions& options,
                                    const ProgressCallback& progress);

}  // namespace moepack
