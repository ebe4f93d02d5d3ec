// A checkpoint becomes a model directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "formats/base/status.h"

namespace moepack {

// What was converted, or what would be.
struct ConvertReport {
  std::string source;  // directory that was read
  std::string model_type;
  std::string expert_format;    // "q4 g64"; several: joined by ", "
  std::string resident_format;  // as expert_format, most bytes first
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint64_t expert_size = 0;  // bytes of the first record
  // Of the smallest and the largest record, where they differ from layer to layer; else 0.
  std::uint64_t smallest_expert = 0;
  std::uint64_t largest_expert = 0;
  std::uint64_t expert_stride = 0;  // the same padded to the page
  std::uint64_t page_size = 0;
  std::uint64_t expert_bytes = 0;        // all layer files
  std::uint64_t resident_bytes = 0;      // model_weights.bin
  std::uint64_t prediction_bytes = 0;    // prediction.bin; 0: nothing is kept
  std::uint64_t prediction_tensors = 0;  // in it
  std::uint64_t total_bytes = 0;         // everything on disk, exact
  std::uint64_t source_bytes = 0;        // read from the source's tensors
  std::optional<std::uint64_t>
      free_bytes;  // at the output, before the conversion; nullopt: unknown
  std::vector<std::string> skipped_tensors;
  std::vector<std::string> kept_tensors;  // residents that no group of the asked size fits
  std::vector<std::string> absent_files;  // companions that the source lacks
  std::vector<std::string> notes;
  std::size_t threads = 0;
  double seconds = 0;

  std::uint64_t needed_bytes = 0;  // free space that this run needs at its fullest
  double estimated_seconds = 0;    // of a dry run: from converting a sample of the experts
  std::uint64_t read_bytes = 0;    // of the source, by this run
  std::size_t layers_resumed = 0;  // finished by earlier runs
  std::size_t layers_left = 0;     // not finished, because only some layers were asked for
  bool finished = false;           // the directory is a model now, or a pack
  bool is_pack = false;            // source and output are packs: nothing is said of residents
  // Of the source: they hold a NaN or an infinite value, as they were stored.
  std::vector<std::string> not_finite_tensors;
  std::vector<std::string> removed_shards;  // with --reclaim, by this run
  std::vector<std::string> kept_shards;     // with --reclaim: they hold skipped tensors
};

// Sizes, formats and every check that needs no tensor data, and how long it will take: a sample of
// experts is converted into a file without a name, for about two seconds. Nothing is left behind.
Result<ConvertReport> plan_conversion(const ConvertOptions& options);

// Writes the model directory. The same source and options give the same bytes, whatever the number
// of threads and of interruptions. Manifests come last. A run that was killed, and one that failed
// for the system's sake (kIo), leaves what is finished, and the same call continues there; after
// any other error everything that was written is removed again.
// kInvalidArgument: the output is in use or the options do not fit; kIo: no space, no permission;
// otherwise the source's errors, each naming file and tensor.
Result<ConvertReport> convert_checkpoint(const ConvertOptions& options,
                                         const ProgressCallback& progress);

}  // namespace moepack
