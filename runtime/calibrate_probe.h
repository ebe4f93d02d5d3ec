// How long a calibration will take and how far its data can be compressed, told by doing a little
// of it.
#pragma once

#include <cstdint>
#include <span>

#include "formats/model_dir.h"
#include "formats/status.h"
#include "runtime/corpus_forward.h"

namespace moepack {

struct CalibrateEstimate {
  double seconds = 0;           // of `layers` layers; without the disk's writing
  double compressed_share = 1;  // of a layer's bytes
};

// Runs the tokens of one window through one layer of each kind and a few experts of each; reads no
// more than these experts. `tokens` (at least one, at most 512 are used) are the window's, `total`
// those of the calibration.
Result<CalibrateEstimate> estimate_calibration(const ModelDir& model, const CorpusOptions& options,
                                               std::span<const std::int32_t> tokens,
                                               std::uint64_t total, std::uint32_t layers_left);

}  // namespace moepack
