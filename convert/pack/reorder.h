// A pack becomes a pack of the same values with its rows in another order.
#pragma once

#include "convert/pack/convert.h"

namespace moepack {

// Whether the path is the directory of an expert pack, which these functions take.
bool is_pack_directory(const std::filesystem::path& path);

// kInvalidArgument for a model directory without safetensors: one of its packs may be meant.
Status check_no_model_directory(const std::filesystem::path& path);

// As plan_conversion, of a pack: nothing is written.
Result<ConvertReport> plan_reordering(const ConvertOptions& options);

// Writes the pack in options.source once more into options.output, a directory whose name begins
// with packed_experts: every matrix in options.row_order where its format has that, records at
// multiples of options.page_size. Bytes are moved and never decoded; formats, source, method and
// report stay, and the checksums are those of the new records. Layer by layer; the same call
// continues an interrupted one. Memory: about three mebibytes a thread.
// kInvalidArgument: options that a pack cannot follow, or an output that is in use; kCorrupt: a
// record has not the checksum of its manifest.
Result<ConvertReport> reorder_pack(const ConvertOptions& options, const ProgressCallback& progress);

}  // namespace moepack
