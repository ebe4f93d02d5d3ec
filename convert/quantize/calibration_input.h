// What a quantization knows about the inputs of the experts, whoever recorded it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/calibration/calibration.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"
#include "quant/expert_statistics.h"

namespace moepack {

// One layer in memory. Its functions may be called from any number of threads.
class LayerStatistics {
 public:
  virtual ~LayerStatistics() = default;
  // Calibration tokens that chose the expert.
  virtual std::uint64_t samples(std::uint32_t expert) const = 0;
  // nullopt: the calibration does not tell.
  virtual std::optional<ExpertUse> use(std::uint32_t /*expert*/) const { return std::nullopt; }
  virtual Result<InputStatistics> gate_up(std::uint32_t expert) const = 0;
  // What down is to be quantized for, given gate and up as they will be stored. Where the
  // calibration cannot tell the inputs of down, they are unknown and the target is empty.
  virtual Result<DownProblem> down(std::uint32_t expert, const ExpertMatrices& weights,
                                   const Matrix& stored_gate, const Matrix& stored_up) const = 0;
};

class CalibrationInput {
 public:
  virtual ~CalibrationInput() = default;

  // Opens a directory that `moepack calibrate` wrote, an activation dump of flash-moe
  // (formats/flashmoe/flashmoe_activations.h), a directory of flash-moe's Hessians
  // (formats/calibration/hessian_directory.h) or an importance matrix of llama.cpp
  // (formats/calibration/imatrix.h). Only the first says with which model it was made, and is
  // kInvalidArgument where that is another model than the one whose experts have `source` and whose
  // residents are `residents` (nullptr: none).
  static Result<std::unique_ptr<CalibrationInput>> open(const std::filesystem::path& path,
                                                        const ModelConfig& config,
                                                        const PackSource& source,
                                                        const ResidentManifest* residents);

  // A description for people: "8 layers x 65,536 tokens".
  virtual std::string description() const = 0;
  // Tells calibrations apart: equal contents, equal number.
  virtual std::uint64_t digest() const = 0;
  // The bytes that one layer takes while it is in memory.
  virtual std::uint64_t layer_bytes() const = 0;
  // The numbers of tokens that chose each expert, where they are known without reading the layer;
  // else empty.
  virtual std::vector<std::uint64_t> samples(std::uint32_t layer) const = 0;
  // What an error in each layer does to the predictions; empty where that was not measured.
  virtual std::vector<DivergenceResponse> response() const { return {}; }
  // What whoever reads the ledger should know, in a sentence each.
  virtual std::vector<std::string> notes() const { return {}; }
  // Reads a layer. `threads`: for the statistics that all of its experts share.
  virtual Result<std::unique_ptr<LayerStatistics>> layer(std::uint32_t layer,
                                                         std::size_t threads) const = 0;
};

}  // namespace moepack
