// The path of few rows, as in decoding: every row reads the matrices for itself, norms are computed
// where their results are used, and an expert's record is read once for each use.
#pragma once

#include <memory>

#include "runtime/vulkan/path.h"

namespace moepack {

// Up to kFewRows rows. `parts` are copied; what they name outlives the path.
std::unique_ptr<Path> make_few_rows_path(const PathParts& parts);

// Logits of `rows` rows (a list on the device, BatchTables::logit_rows) of the batch's hidden states,
// at DeviceScratch::logits, whichever path computed them; without a barrier.
void record_head(const PathParts& parts, CommandList& list, std::uint32_t rows);

}  // namespace moepack
