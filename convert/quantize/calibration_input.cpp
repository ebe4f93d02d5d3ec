#include "convert/quantize/calibration_input.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include "convert/job/parallel.h"
#include "convert/quantize/imatrix_calibration.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/calibration/hessian_directory.h"
#include "formats/flashmoe/flashmoe_activations.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// How many tokens make up a layer's common Hessian; it is enough for any width met so far.
constexpr std::size_t kLayerTokens = 16384;

// Adds the name below `root`, size and time of change of a file. Files of others may be too large
// to be read just to be recognised.
void add_identity(const fs::path& file, const fs::path& root, ChecksumStream& sum) {
  std::error_code error;
  const std::string text =
      file.lexically_relative(root).string() + "\n" + std::to_string(fs::file_size(file, error)) +
      "\n" + std::to_string(fs::last_write_time(file, error).time_since_epoch().count());
  sum.add(std::as_bytes(std::span(text)));
}

class RecordedLayer : public LayerStatistics {
 public:
  RecordedLayer(LayerActivations activations, std::uint32_t num_experts)
      : activations_(std::move(activations)), inputs_(activations_, num_experts) {}
  RecordedLayer(const RecordedLayer&) = delete;
  RecordedLayer& operator=(const RecordedLayer&) = delete;

  static Result<std::unique_ptr<LayerStatistics>> make(LayerActivations activations,
                                                       std::uint32_t num_experts,
                                                       std::size_t threads) {
    auto layer = std::make_unique<RecordedLayer>(std::move(activations), num_experts);
    MOE_RETURN_IF_ERROR(layer->find_common_hessian(threads));
    return std::unique_ptr<LayerStatistics>(std::move(layer));
  }

  Status find_common_hessian(std::size_t threads) {
    Status status;
    common_ = layer_hessian(inputs_, kLayerTokens, [&](std::size_t count, const auto& work) {
      const Status done = parallel_items(count, threads, [&](std::size_t item, std::size_t) {
        work(item);
        return Status::ok();
      });
      if (status.is_ok()) status = done;
    });
    return status;
  }

  std::uint64_t samples(std::uint32_t expert) const override { return inputs_.samples(expert); }
  std::optional<ExpertUse> use(std::uint32_t expert) const override { return inputs_.use(expert); }
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
  LayerHessian common_;
};

class RecordedCalibration : public CalibrationInput {
 public:
  RecordedCalibration(fs::path directory, CalibrationManifest manifest, std::string note)
      : directory_(std::move(directory)), manifest_(std::move(manifest)), note_(std::move(note)) {}

  std::string description() const override {
    return directory_.string() + " (" + std::to_string(manifest_.tokens) + " tokens)";
  }
  std::uint64_t digest() const override {
    // The response says nothing about the inputs.
    CalibrationManifest recorded = manifest_;
    recorded.response.clear();
    const std::string text = calibration_manifest_text(recorded);
    return checksum(std::as_bytes(std::span(text)));
  }
  std::uint64_t layer_bytes() const override {
    return manifest_.tokens *
               (2 * manifest_.hidden_size + std::uint64_t{14} * manifest_.experts_per_token) +
           4 * manifest_.hidden_size * manifest_.hidden_size;
  }
  std::vector<std::uint64_t> samples(std::uint32_t layer) const override {
    return manifest_.layers[layer].samples;
  }
  std::vector<DivergenceResponse> response() const override { return manifest_.response; }
  std::vector<std::string> notes() const override {
    return note_.empty() ? std::vector<std::string>() : std::vector<std::string>{note_};
  }
  Result<std::unique_ptr<LayerStatistics>> layer(std::uint32_t layer,
                                                 std::size_t threads) const override {
    MOE_ASSIGN_OR_RETURN(LayerActivations activations,
                         read_layer_activations(directory_, manifest_, layer));
    return RecordedLayer::make(std::move(activations), manifest_.num_experts, threads);
  }

 private:
  fs::path directory_;
  CalibrationManifest manifest_;
  std::string note_;
};

// An activation dump of the flash-moe engines.
class DumpedCalibration : public CalibrationInput {
 public:
  DumpedCalibration(fs::path path, FlashMoeActivations dump, const ModelConfig& config)
      : path_(std::move(path)),
        dump_(std::move(dump)),
        num_experts_(config.num_experts),
        hidden_size_(config.hidden_size),
        num_layers_(config.num_layers) {}

  std::string description() const override {
    return path_.string() + " (activation dump, " + std::to_string(dump_.tokens(0)) + " tokens)";
  }
  std::uint64_t digest() const override {
    ChecksumStream sum;
    add_identity(path_, path_.parent_path(), sum);
    return sum.finish();
  }
  std::uint64_t layer_bytes() const override {
    std::uint64_t most = 0;
    for (std::uint32_t l = 0; l < num_layers_; ++l) most = std::max(most, dump_.tokens(l));
    return most * (2 * hidden_size_ + std::uint64_t{14} * dump_.experts_per_token());
  }
  std::vector<std::uint64_t> samples(std::uint32_t /*layer*/) const override { return {}; }
  std::vector<std::string> notes() const override {
    return {
        "the activation dump does not tell the router's weights: all tokens of an expert count "
        "the same"};
  }
  Result<std::unique_ptr<LayerStatistics>> layer(std::uint32_t layer,
                                                 std::size_t threads) const override {
    MOE_ASSIGN_OR_RETURN(LayerActivations activations, dump_.read_layer(layer));
    return RecordedLayer::make(std::move(activations), num_experts_, threads);
  }

 private:
  fs::path path_;
  FlashMoeActivations dump_;
  std::uint32_t num_experts_;
  std::uint64_t hidden_size_;
  std::uint32_t num_layers_;
};

// One layer of flash-moe's Hessians, which are those of gate and up alone and come without inputs
// to judge by.
class HessianLayer : public LayerStatistics {
 public:
  HessianLayer(const HessianDirectory& hessians, std::uint32_t layer)
      : hessians_(hessians), layer_(layer) {}

  std::uint64_t samples(std::uint32_t expert) const override {
    return hessians_.samples(layer_, expert);
  }
  Result<InputStatistics> gate_up(std::uint32_t expert) const override {
    InputStatistics out;
    if (!hessians_.has(layer_, expert)) return out;
    MOE_ASSIGN_OR_RETURN(const std::vector<float> sum, hessians_.read(layer_, expert));
    out.is_known = true;
    out.samples = hessians_.samples(layer_, expert);
    const auto n = static_cast<Eigen::Index>(std::lround(std::sqrt(sum.size())));
    out.hessian = Eigen::Map<const Matrix>(sum.data(), n, n) / static_cast<float>(out.samples);
    mirror_upper(out.hessian);
    draw_to_diagonal(out.hessian, out.hessian.diagonal(),
                     shrinkage_alone(static_cast<double>(out.samples), out.hessian.rows()));
    return out;
  }
  Result<DownProblem> down(std::uint32_t /*expert*/, const ExpertMatrices& /*weights*/,
                           const Matrix& /*stored_gate*/,
                           const Matrix& /*stored_up*/) const override {
    return DownProblem{};
  }

 private:
  const HessianDirectory& hessians_;
  std::uint32_t layer_;
};

class HessianCalibration : public CalibrationInput {
 public:
  HessianCalibration(fs::path path, HessianDirectory hessians, const ModelConfig& config)
      : path_(std::move(path)),
        hessians_(std::move(hessians)),
        num_experts_(config.num_experts),
        hidden_size_(config.hidden_size) {}

  std::string description() const override { return path_.string() + " (Hessians)"; }
  std::uint64_t digest() const override {
    std::error_code error;
    std::vector<fs::path> files;
    for (fs::recursive_directory_iterator at(path_, error), end; !error && at != end;
         at.increment(error)) {
      if (at->is_regular_file(error)) files.push_back(at->path());
    }
    std::sort(files.begin(), files.end());
    ChecksumStream sum;
    for (const fs::path& file : files) add_identity(file, path_, sum);
    return sum.finish();
  }
  std::uint64_t layer_bytes() const override { return hidden_size_ * hidden_size_ * 4; }
  std::vector<std::uint64_t> samples(std::uint32_t layer) const override {
    std::vector<std::uint64_t> out(num_experts_);
    for (std::uint32_t e = 0; e < num_experts_; ++e) out[e] = hessians_.samples(layer, e);
    return out;
  }
  std::vector<std::string> notes() const override {
    return {
        "Hessians tell nothing of the inputs of down_proj: it gets the unweighted grid, and "
        "errors of gate and up are measured by the same Hessians"};
  }
  Result<std::unique_ptr<LayerStatistics>> layer(std::uint32_t layer,
                                                 std::size_t /*threads*/) const override {
    return std::unique_ptr<LayerStatistics>(std::make_unique<HessianLayer>(hessians_, layer));
  }

 private:
  fs::path path_;
  HessianDirectory hessians_;
  std::uint32_t num_experts_;
  std::uint64_t hidden_size_;
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
                   const ResidentManifest* residents, std::string& note) {
  MOE_RETURN_IF_ERROR(check_dimension(file, "layers", calibration.num_layers, config.num_layers));
  MOE_RETURN_IF_ERROR(
      check_dimension(file, "experts", calibration.num_experts, config.num_experts));
  MOE_RETURN_IF_ERROR(
      check_dimension(file, "hidden size", calibration.hidden_size, config.hidden_size));
  MOE_RETURN_IF_ERROR(
      check_dimension(file, "expert width", calibration.expert_width, config.expert_width));
  for (std::uint32_t l = 0; l < config.num_layers; ++l) {
    MOE_RETURN_IF_ERROR(check_dimension(
        file, "experts of a layer", calibration.layers[l].has_experts() ? config.num_experts : 0,
        has_experts(config.layers[l]) ? config.num_experts : 0));
  }
  const std::uint64_t here =
      residents != nullptr && residents->has_checksum ? residents->checksum : 0;
  MOE_RETURN_IF_ERROR(check_dimension(file, "experts per token", calibration.experts_per_token,
                                      config.experts_per_token));
  // The bytes of the resident tensors tell models of one shape apart. A checkpoint's fingerprint,
  // which is made from its headers, does not always do so.
  const bool both_residents = calibration.residents_checksum != 0 && here != 0;
  const bool both_sources = calibration.source_fingerprint != 0 && source.fingerprint != 0;
  if (!both_residents && !both_sources) {
    note =
        "neither the calibration nor the model says what it was made from: nobody checked that "
        "they belong together";
    return Status::ok();
  }
  const bool same = both_residents ? calibration.residents_checksum == here
                                   : calibration.source_fingerprint == source.fingerprint;
  if (same) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = file},
                    "was made with another model (" + printable(calibration.model) + ")",
                    "run moepack calibrate on this model");
}

}  // namespace

Result<std::unique_ptr<CalibrationInput>> CalibrationInput::open(
    const fs::path& path, const ModelConfig& config, const PackSource& source,
    const ResidentManifest* residents) {
  std::error_code ignored;
  if (is_imatrix_file(path)) return open_imatrix(path, config);
  if (fs::is_regular_file(path, ignored)) {
    MOE_ASSIGN_OR_RETURN(FlashMoeActivations dump,
                         FlashMoeActivations::open(path, {.num_layers = config.num_layers,
                                                          .num_experts = config.num_experts,
                                                          .hidden_size = config.hidden_size}));
    for (std::uint32_t l = 0; l < config.num_layers; ++l) {
      if (dump.tokens(l) > 0) continue;
      const std::string name = path.string();
      return not_found(Where{.file = name}, "holds no record of layer " + std::to_string(l),
                       "let the engine run all layers when it collects activations");
    }
    return std::unique_ptr<CalibrationInput>(
        std::make_unique<DumpedCalibration>(path, std::move(dump), config));
  }
  const bool has_manifest = fs::exists(path / kCalibrationManifestName, ignored);
  if (!has_manifest && fs::is_directory(path / "layer_00", ignored)) {
    MOE_ASSIGN_OR_RETURN(HessianDirectory hessians,
                         HessianDirectory::open(path, {.num_layers = config.num_layers,
                                                       .num_experts = config.num_experts,
                                                       .hidden_size = config.hidden_size}));
    return std::unique_ptr<CalibrationInput>(
        std::make_unique<HessianCalibration>(path, std::move(hessians), config));
  }
  MOE_ASSIGN_OR_RETURN(CalibrationManifest manifest, read_calibration_manifest(path));
  const std::string file = (path / kCalibrationManifestName).string();
  std::string note;
  MOE_RETURN_IF_ERROR(check_model(manifest, file, config, source, residents, note));
  return std::unique_ptr<CalibrationInput>(
      std::make_unique<RecordedCalibration>(path, std::move(manifest), std::move(note)));
}

}  // namespace moepack
