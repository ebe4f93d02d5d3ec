#include "convert/calibration_input.h"

#include "convert/parallel.h"
#include "formats/checksum.h"
#include "formats/file.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// Tokens that make up a layer's common Hessian: enough for any width met so far.
constexpr std::size_t kLayerTokens = 16384;

class RecordedLayer : public LayerStatistics {
 public:
  RecordedLayer(LayerActivations activations, std::uint32_t num_experts)
      : activations_(std::move(activations)), inputs_(activations_, num_experts) {}
  RecordedLayer(const RecordedLayer&) = delete;
  RecordedLayer& operator=(const RecordedLayer&) = delete;

  void find_common_hessian(std::size_t threads) {
    common_ = layer_hessian(inputs_, kLayerTokens, [&](std::size_t count, const auto& work) {
      (void)parallel_items(count, threads, [&](std::size_t item, std::size_t) {
        work(item);
        return Status::ok();
      });
    });
  }

  std::uint64_t samples(std::uint32_t expert) const override { return inputs_.samples(expert); }
  Result<InputStatistics> gate_up(std::uint32_t expert) const override {
    return gate_up_statistics(inputs_, common_, expert);
  }
  Result<DownProblem> down(std::uint32_t expert, const ExpertMatrices& weights,
                           const Matrix& stored_gate, const Matrix& stored_up) const override {
    return down_problem(inputs_, weights, stored_gate, stored_up, expert);
  }

 private:
  LayerActivations activations_;
  LayerInputs inputs_;
  Matrix common_;
};

class RecordedCalibration : public CalibrationInput {
 public:
  RecordedCalibration(fs::path directory, CalibrationManifest manifest)
      : directory_(std::move(directory)), manifest_(std::move(manifest)) {}

  std::string description() const override {
    return directory_.string() + " (" + std::to_string(manifest_.tokens) + " tokens)";
  }
  std::uint64_t digest() const override {
    const std::string text = calibration_manifest_text(manifest_);
    return checksum(std::as_bytes(std::span(text)));
  }
  std::uint64_t layer_bytes() const override {
    return manifest_.tokens *
           (2 * manifest_.hidden_size + std::uint64_t{14} * manifest_.experts_per_token);
  }
  std::vector<std::uint64_t> samples(std::uint32_t layer) const override {
    return manifest_.layers[layer].samples;
  }
  Result<std::unique_ptr<LayerStatistics>> layer(std::uint32_t layer,
                                                 std::size_t threads) const override {
    MOE_ASSIGN_OR_RETURN(LayerActivations activations,
                         read_layer_activations(directory_, manifest_, layer));
    auto read = std::make_unique<RecordedLayer>(std::move(activations), manifest_.num_experts);
    read->find_common_hessian(threads);
    return std::unique_ptr<LayerStatistics>(std::move(read));
  }

 private:
  fs::path directory_;
  CalibrationManifest manifest_;
};

Status check_dimension(const std::string& file, const char* what, std::uint64_t found,
                       std::uint64_t expected) {
  if (found == expected) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = file},
                    "was made with another model: " + std::string(what) + " " +
                        std::to_string(found) + ", this one has " + std::to_string(expected),
                    "run moepack calibrate on this model");
}

Status check_model(const CalibrationManifest& calibration, const std::string& file,
                   const ModelConfig& config, const PackSource& source,
                   const ResidentManifest* residents) {
  MOE_RETURN_IF_ERROR(check_dimension(file, "layers", calibration.num_layers, config.num_layers));
  MOE_RETURN_IF_ERROR(
      check_dimension(file, "experts", calibration.num_experts, config.num_experts));
  MOE_RETURN_IF_ERROR(
      check_dimension(file, "hidden size", calibration.hidden_size, config.hidden_size));
  MOE_RETURN_IF_ERROR(
      check_dimension(file, "expert width", calibration.expert_width, config.expert_width));
  const bool same_source =
      calibration.source_fingerprint != 0 && calibration.source_fingerprint == source.fingerprint;
  const bool same_residents = calibration.residents_checksum != 0 && residents != nullptr &&
                              residents->has_checksum &&
                              calibration.residents_checksum == residents->checksum;
  if (same_source || same_residents) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = file},
                    "was made with another model (" + printable(calibration.model) + ")",
                    "run moepack calibrate on this model");
}

}  // namespace

Result<std::unique_ptr<CalibrationInput>> CalibrationInput::open(
    const fs::path& path, const ModelConfig& config, const PackSource& source,
    const ResidentManifest* residents) {
  MOE_ASSIGN_OR_RETURN(CalibrationManifest manifest, read_calibration_manifest(path));
  const std::string file = (path / kCalibrationManifestName).string();
  MOE_RETURN_IF_ERROR(check_model(manifest, file, config, source, residents));
  return std::unique_ptr<CalibrationInput>(
      std::make_unique<RecordedCalibration>(path, std::move(manifest)));
}

}  // namespace moepack
