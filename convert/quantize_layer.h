// One layer of a pack: every expert read, quantized and written.
#pragma once

#include <filesystem>

#include "convert/calibration_input.h"
#include "convert/expert_weights.h"
#include "convert/progress_counter.h"
#include "convert/quality_ledger.h"
#include "quant/quantize_matrix.h"

namespace moepack {

struct LayerJob {
  const ExpertWeights& weights;
  const LayerStatistics* statistics;  // nullptr without calibration
  QuantMethod method;
  std::uint32_t layer;
};

// Writes layer_NN.bin into `directory` as `pack` says, fills in its checksums and `quality`.
// Experts are shared among the threads; the bytes do not depend on their number. The file is
// complete but neither synced nor under its name: commit() it.
Result<AtomicFile> quantize_layer(const LayerJob& job, const std::filesystem::path& directory,
                                  std::size_t threads, PackManifest& pack, LayerQuality& quality,
                                  ProgressCounter& progress);

}  // namespace moepack
