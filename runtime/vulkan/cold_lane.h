// The processor's part of a layer whose experts do not all lie on the device: the experts that rows
// have chosen and that are not there, computed by the processor's own mixture of experts from the
// records of the expert store, in the formats that they are stored in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/activations.h"
#include "runtime/model/compute.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/moe.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// A lane computes at most so many rows, of at most one slice each.
struct ColdLaneLimits {
  std::uint64_t rows = 0;
  std::uint64_t threads = 1;
  ActivationType activations = ActivationType::kFloat32;
};

// Bytes of the machine's memory that a lane takes, without the store's.
std::uint64_t cold_lane_bytes(const ModelConfig& config, const ColdLaneLimits& limits);

// One thread at a time calls it; the work is shared among its own threads.
class ColdLane {
 public:
  // Copies what it needs of `weights`, which may go afterwards. `kernels` outlives it. The errors
  // of Activations::create.
  static Result<std::unique_ptr<ColdLane>> create(const ModelConfig& config,
                                                  const ModelWeights& weights,
                                                  const Kernels& kernels,
                                                  const ColdLaneLimits& limits);

  // The sums over the experts `uses` of norm(hidden), by row in the order of slots: [rows, H],
  // valid until the next call; zeros for a row without any. `uses` by row, then slot. hidden
  // [rows, H], before the layer's experts. A row whose expert cannot be read is in failed_rows();
  // an error is the store's refusal of the batch.
  Result<std::span<const float>> compute(std::uint32_t layer, std::span<const Assignment> uses,
                                         const float* hidden, std::size_t rows, ExpertStore& store);
  std::vector<FailedRow> failed_rows() const { return moe_->failed_rows(); }

 private:
  struct Layer {
    std::vector<float> norm;  // [H]
    MoeWeights moe;           // of the routed experts alone, without matrices
  };

  ColdLane(const ModelConfig& config, Activations&& scratch) : scratch_(std::move(scratch)) {
    hidden_size_ = config.hidden_size;
    eps_ = config.rms_norm_eps;
  }

  Activations scratch_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<MixtureOfExperts> moe_;
  std::vector<Layer> layers_;
  std::size_t hidden_size_ = 0;
  float eps_ = 0;
};

}  // namespace moepack
