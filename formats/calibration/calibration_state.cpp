#include "formats/calibration/calibration_state.h"

#include <nlohmann/json.hpp>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/limits.h"
#include "formats/calibration/calibration_json.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kMaxStateBytes = std::uint64_t{64} << 20;

}  // namespace

std::string residual_file_name(std::size_t layers_done) {
  const std::string number = std::to_string(layers_done);
  return "residual_" + (number.size() < 2 ? "0" + number : number) + ".f32";
}

std::string calibration_state_text(const CalibrationState& state) {
  std::string text =
      "{\n  \"state_version\": " + std::to_string(kVersion) +
      ",\n  \"plan\": " + json_quote(checksum_text(state.plan)) +
      ",\n  \"what\": " + json_quote(state.what) +
      ",\n  \"tokens\": " + std::to_string(state.tokens) +
      ",\n  \"num_experts\": " + std::to_string(state.num_experts) +
      ",\n  \"experts_per_token\": " + std::to_string(state.experts_per_token) +
      ",\n  \"residual_checksum\": " + json_quote(checksum_text(state.residual_checksum)) +
      ",\n  \"layers\": [";
  std::string_view separator = "\n    ";
  for (const CalibrationLayer& layer : state.layers) {
    text += separator;
    text += calibration_layer_text(layer);
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

Result<CalibrationState> parse_calibration_state(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  MOE_RETURN_IF_ERROR(root.expect_number("state_version", kVersion, "this version of moepack"));
  MOE_RETURN_IF_ERROR(root.allow_only({"state_version", "plan", "what", "tokens", "num_experts",
                                       "experts_per_token", "residual_checksum", "layers"}));
  CalibrationState state;
  MOE_ASSIGN_OR_RETURN(state.plan, root.checksum("plan"));
  MOE_ASSIGN_OR_RETURN(state.what, root.string("what"));
  MOE_ASSIGN_OR_RETURN(state.tokens, root.number("tokens", 1, kMaxCalibrationTokens));
  MOE_ASSIGN_OR_RETURN(state.num_experts, root.number32("num_experts", 1, kMaxLayerExperts));
  MOE_ASSIGN_OR_RETURN(state.experts_per_token,
                       root.number32("experts_per_token", 1, state.num_experts));
  MOE_ASSIGN_OR_RETURN(state.residual_checksum, root.checksum("residual_checksum"));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* layers, root.array("layers"));
  if (layers->size() > kMaxModelLayers) return root.error("layers", "are too many");
  const std::uint64_t uses = state.tokens * state.experts_per_token;
  for (std::uint32_t i = 0; i < layers->size(); ++i) {
    MOE_ASSIGN_OR_RETURN(CalibrationLayer layer,
                         parse_calibration_layer(root, i, state.num_experts, uses));
    state.layers.push_back(std::move(layer));
  }
  return state;
}

Result<CalibrationState> read_calibration_state(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kCalibrationStateName;
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxStateBytes));
  return parse_calibration_state(text, file.string());
}

Status write_calibration_state(const std::filesystem::path& directory,
                               const CalibrationState& state) {
  return write_text_file(directory / kCalibrationStateName, calibration_state_text(state));
}

}  // namespace moepack
