// Is a model directory sound, and is it what its source says?
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "convert/source/path_kind.h"
#include "convert/verify/difference.h"
#include "formats/base/status.h"
#include "formats/config/companion_files.h"

namespace moepack {

struct VerifyOptions {
  std::filesystem::path path;                    // a model directory or the directory of one pack
  std::optional<std::filesystem::path> against;  // the source, as ModelSource::open takes it
  std::string pack;                              // of a model: as choose_pack takes it; "": all
  unsigned threads = 0;                          // 0: one per processor
  TokenizerCheck tokenizer = {};                 // of tokenizer.json; empty: it is only parsed
};

struct VerifiedPack {
  std::string name;  // of its directory
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  bool has_checksums = false;
  bool compared = false;  // with the source
};

struct VerifiedOverlay {
  std::string name;  // of its data file
  std::uint64_t matrices = 0;
  std::uint64_t bytes = 0;
};

// All matrices that have one format in the source and one here.
struct ComparedFormat {
  std::string part;  // "experts of PACK", "overlay GROUP", "residents", "prediction"
  std::string source_format;
  std::string format;
  bool copied = false;  // compared byte for byte; else decoded
  std::uint64_t matrices = 0;
  std::uint64_t bytes = 0;  // here
  double relative_rms = 0;  // of the decoded values
  double largest = 0;       // error of one value
  std::string worst;        // the matrix of the highest relative error
  double worst_relative_rms = 0;
};

struct VerifyReport {
  PathKind kind = PathKind::kModel;
  std::vector<VerifiedPack> packs;
  std::vector<VerifiedOverlay> overlays;
  std::uint64_t resident_tensors = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t prediction_tensors = 0;  // of prediction.bin; 0: there is none
  std::uint64_t prediction_bytes = 0;
  std::vector<ComparedFormat> compared;
  std::vector<Difference> differences;  // the first DifferenceLog::kKept
  std::uint64_t num_differences = 0;
  std::vector<std::string> notes;
  std::size_t threads = 0;
  double seconds = 0;
};

// Reads every byte. Differences between what should be and what is are no errors: they stand in the
// report. An error is what cannot be read or contradicts itself: manifests, sizes, companions, an
// unfinished conversion. Memory: about 4 MiB per thread beside the manifests.
Result<VerifyReport> verify_model(const VerifyOptions& options, const ProgressCallback& progress);

}  // namespace moepack
