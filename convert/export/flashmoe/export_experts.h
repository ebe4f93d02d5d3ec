// packed_experts/layer_NN.bin and layout.json as the flash-moe engines read them: one affine format
// for all experts, records without padding.
#pragma once

#include <cstdint>
#include <string>

#include "convert/job/export_directory.h"
#include "convert/job/progress_counter.h"
#include "formats/model_dir.h"

namespace moepack {

// What the engines can take of a pack.
struct ExpertExport {
  std::string directory;  // "packed_experts" of 4 bits, "packed_experts_2bit" of 2
  std::uint32_t bits = 0;
  ExpertLayout layout;    // of every record as it is written: its rows follow each other
  bool is_plain = false;  // the layer files are already what the engines read
};

// kUnsupported, saying why: experts of several formats, or of another format than affine 4 or 2
// bits with BF16 scales per 64 inputs.
Result<ExpertExport> plan_expert_export(const ModelDir& model);

struct ExpertFiles {
  std::uint32_t linked = 0;   // hard links to the model's files
  std::uint32_t written = 0;  // copied record by record
};

// Fills `directory`: links each layer file that is plain where the file system allows it, and
// writes the others, records in order, their rows too, and checked against their checksums.
// layout.json comes last.
Result<ExpertFiles> write_export_experts(const ModelDir& model, const ExpertExport& plan,
                                         std::size_t threads, ExportDirectory& directory,
                                         ProgressCounter& progress);

}  // namespace moepack
