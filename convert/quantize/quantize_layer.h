// One layer of a pack: every expert read, quantized and written.
#pragma once

#include <filesystem>

#include "convert/job/progress_counter.h"
#include "convert/quantize/calibration_input.h"
#include "convert/quantize/expert_weights.h"
#include "convert/quantize/reusable_packs.h"
#include "convert/report/quality_ledger.h"
#include "quant/quantize_matrix.h"

namespace moepack {

struct LayerJob {
  const ExpertWeights& weights;
  // nullptr without calibration, or where every expert is taken over.
  const LayerStatistics* statistics;
  const ReusablePacks& reuse;
  QuantMethod method;
  QuantError error;                    // that the ledger holds
  std::vector<std::uint64_t> samples;  // [experts]; empty without calibration
  std::uint32_t layer;
  ExpertActivation activation;
};

// Takes over the records that `reuse` has, and quantizes the others: writes layer_NN.bin into
// `directory` as `pack` says, fills in its checksums and `quality`. Experts are shared among the
// threads; the bytes do not depend on their number. The file is complete but neither synced nor
// under its name: commit() it.
Result<AtomicFile> quantize_layer(const LayerJob& job, const std::filesystem::path& directory,
                                  std::size_t threads, PackManifest& pack, LayerQuality& quality,
                                  ProgressCounter& progress);

}  // namespace moepack
