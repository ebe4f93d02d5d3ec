// What a quantization, or its measuring, reads: the model, its experts' weights, a calibration.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/quantize/calibration_input.h"
#include "convert/quantize/expert_weights.h"
#include "formats/config/model_config.h"
#include "quant/quantize_matrix.h"

namespace moepack {

struct QuantizeInputs {
  ModelConfig config;
  ExpertWeights weights;
  std::unique_ptr<CalibrationInput> calibration;  // nullptr without
  std::vector<std::string> notes;                 // what the user should know; a sentence each
};

// Opens all inputs. `from` is as ExpertWeights::open takes it. kInvalidArgument: the method needs a
// calibration and there is none, or it is one of another model.
Result<QuantizeInputs> open_quantize_inputs(
    const std::filesystem::path& model, const std::string& from, QuantMethod method,
    const std::optional<std::filesystem::path>& calibration);

// Where no group size fits a model's experts: nothing else can be quantized to.
inline constexpr std::string_view kNoGroupRemedy =
    "these experts cannot be quantized, and stay as convert wrote them";

}  // namespace moepack
