// A pack and resident tensors against the checkpoint they were made from.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "convert/job/progress_counter.h"
#include "convert/overlay/same_weights.h"
#include "convert/pack/plan.h"
#include "convert/source/model_files.h"
#include "convert/verify/verify.h"

namespace moepack {

// What a comparison needs and where its findings go.
struct SourceComparison {
  const ModelSource& source;
  const ConvertPlan& plan;  // of the source with everything as it is
  std::size_t threads;
  DifferenceLog& log;
  ProgressCounter& progress;
  std::vector<ComparedFormat>& compared;
};

// That the pack was made from another checkpoint, as a difference.
void log_fingerprint(const SourceComparison& with, const std::filesystem::path& directory,
                     const PackManifest& pack);

// Every projection of every expert. In the source's format, written by a method that copies such
// bytes (as other engines' do): equal bytes. Otherwise decoded: within the limits of rounding
// (convert/verify/rounding_error.h) where the method is rounding, and below kMaxRelativeRms by any
// other.
Status compare_experts(const SourceComparison& with, const std::filesystem::path& directory,
                       const PackManifest& pack);

// Every resident tensor, those only here or only there included, and the conventions.
Status compare_residents(const SourceComparison& with, const std::filesystem::path& model,
                         const ResidentManifest& residents, const ResidentData& data);

}  // namespace moepack
