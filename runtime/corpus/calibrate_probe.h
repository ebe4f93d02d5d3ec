// How long a calibration will take and how far its data can be compressed, told by doing a little
// of it.
#pragma once

#include <cstdint>
#include <span>

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/corpus/corpus_forward.h"

namespace moepack {

struct CalibrateEstimate {
  double seconds = 0;           // of `layers` layers; without the disk's writing
  double compressed_share = 1;  // of a layer's bytes
};

struct CalibrateWork {
  std::uint64_t tokens = 0;       // of every layer
  std::uint32_t layers_left = 0;  // the last ones
  std::uint64_t probe_work = 0;   // tokens times layers besides, in a pass of its own; 0: none
};

// Runs the tokens of one window through one layer of each kind and a few experts of each; reads no
// more than these experts. `tokens` (at least one, at most 512 are used) are the window's.
Result<CalibrateEstimate> estimate_calibration(const ModelDir& model, const CorpusOptions& options,
                                               std::span<const std::int32_t> tokens,
                                               const CalibrateWork& work);

}  // namespace moepack
