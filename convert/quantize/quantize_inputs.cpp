#include "convert/quantize/quantize_inputs.h"

#include <algorithm>
#include <variant>

#include "formats/flashmoe/flashmoe_resident.h"
#include "formats/model_dir.h"

namespace moepack {
namespace {

Status open_calibration(const std::filesystem::path& model, QuantMethod method,
                        const std::optional<std::filesystem::path>& path, QuantizeInputs& inputs) {
  if (!path.has_value()) {
    if (method != QuantMethod::kGptq) return Status::ok();
    return invalid_argument("gptq needs to know the inputs of the experts",
                            "run moepack calibrate and give --calibration, or take --method grid");
  }
  std::optional<ResidentManifest> residents;
  if (auto read = read_model_residents(model, inputs.config); read.is_ok()) {
    residents = std::move(read).value();
  }
  MOE_ASSIGN_OR_RETURN(inputs.calibration,
                       CalibrationInput::open(*path, inputs.config, inputs.weights.source(),
                                              residents.has_value() ? &*residents : nullptr));
  const bool used = method == QuantMethod::kGrid || method == QuantMethod::kGptq;
  if (!used) {
    inputs.notes.push_back(
        std::string(quant_method_name(method)) +
        " does not look at the calibration; only the errors are measured with it");
  }
  for (std::string& note : inputs.calibration->notes()) inputs.notes.push_back(std::move(note));
  return Status::ok();
}

// The inputs of down_proj are made of those of the expert, without biases or limits.
Status check_activations(const ModelConfig& config, bool is_calibrated) {
  const bool is_other =
      std::any_of(config.layers.begin(), config.layers.end(), [](const LayerSpec& layer) {
        const auto* experts = std::get_if<ExpertsSpec>(&layer.feed_forward);
        return experts != nullptr &&
               (experts->has_biases || experts->activation == ExpertActivation::kClampedSwiGlu);
      });
  if (!is_other || !is_calibrated) return Status::ok();
  return unsupported(Where{},
                     "model type " + config.model_type +
                         " has experts with biases, whose inputs a calibration does not "
                         "tell the quantizer",
                     "quantize it without --calibration, with --method rtn, clip or grid");
}

}  // namespace

Result<QuantizeInputs> open_quantize_inputs(
    const std::filesystem::path& model, const std::string& from, QuantMethod method,
    const std::optional<std::filesystem::path>& calibration) {
  QuantizeInputs inputs;
  MOE_RETURN_IF_ERROR(check_model_finished(model));
  MOE_ASSIGN_OR_RETURN(ParsedConfig config, read_model_config(model / "config.json"));
  inputs.config = std::move(config.model);
  MOE_ASSIGN_OR_RETURN(inputs.weights, ExpertWeights::open(model, inputs.config, from));
  MOE_RETURN_IF_ERROR(check_activations(inputs.config, calibration.has_value()));
  MOE_RETURN_IF_ERROR(open_calibration(model, method, calibration, inputs));
  if (inputs.weights.bits_per_weight() < 16) {
    inputs.notes.push_back("starts from experts that were rounded before, " +
                           inputs.weights.formats() +
                           ": give --from an unquantized checkpoint where there is one");
  }
  return inputs;
}

}  // namespace moepack
