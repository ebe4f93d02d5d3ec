// What a conversion will write, byte for byte in size, before anything is written. Reads headers
// and small files only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "convert/source/expert_source.h"
#include "convert/source/model_source.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/prediction_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

struct ConvertPlan {
  ExpertSource experts;
  PackManifest pack;  // complete but for the checksums
  // Complete but for the checksum; residents[i] is the source of resident.tensors[i].
  ResidentManifest resident;
  std::vector<SourceMatrix> resident_sources;
  // What is kept of the prediction block, complete but for the checksums; prediction_sources[i] is
  // the source of prediction.tensors[i]. Empty where it is not asked for, or where there is none.
  PredictionManifest prediction;
  std::vector<SourceTensor> prediction_sources;

  std::vector<std::string> skipped;   // source names of tensors that are left out, sorted
  std::vector<std::string> kept;      // residents that stay as they are for want of a fitting group
  std::vector<std::string> notes;     // what the user should know, one sentence each
  std::vector<Companion> companions;  // config.json, tokenizer.json, …: add_companions
  std::vector<std::string> absent_companions;  // those that the source lacks

  std::uint64_t expert_bytes = 0;    // of all layer files
  std::uint64_t resident_bytes = 0;  // of model_weights.bin
  std::uint64_t source_bytes = 0;    // to be read
  // Everything on disk, manifests estimated from their skeletons.
  std::uint64_t total_bytes = 0;
};

// kInvalidArgument: options that contradict each other or the shapes; otherwise the errors of
// names, shapes and formats, each naming the tensor.
Result<ConvertPlan> make_plan(const ModelSource& source, const ConvertOptions& options);

// The parts of it that other makers of packs share. kInvalidArgument: a page size that is no power
// of two or too large; a layer that does not exist.
constexpr std::uint64_t kMaxPageSize = std::uint64_t{1} << 24;
Status check_page_size(std::uint64_t page_size);
Status check_layer_exists(std::uint32_t layer, std::uint32_t num_layers);
// kInvalidArgument where panels were asked for and no matrix of the pack has them.
Status check_row_order(const PackManifest& pack, RowOrder order);

// Adds the small files and their sizes, which only a conversion needs.
Status add_companions(const ModelSource& source, const TokenizerCheck& tokenizer,
                      ConvertPlan& plan);

}  // namespace moepack
