#include "formats/calibration/calibration.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/limits.h"
#include "formats/base/number_text.h"
#include "formats/calibration/calibration_json.h"
#include "formats/calibration/calibration_state.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {
namespace {

Status check_version(const JsonFields& root) {
  if (!root.has("format_version")) {
    return root.error("format_version", "is missing; this is not a calibration of moepack",
                      "give a directory written by moepack calibrate");
  }
  return root.expect_version(kCalibrationFormatVersion,
                             "use the moepack that wrote it or calibrate again");
}

Status parse_dimensions(const JsonFields& root, CalibrationManifest& m) {
  MOE_ASSIGN_OR_RETURN(m.num_layers, root.number32("num_layers", 1, kMaxModelLayers));
  MOE_ASSIGN_OR_RETURN(m.num_experts, root.number32("num_experts", 1, kMaxLayerExperts));
  MOE_ASSIGN_OR_RETURN(m.experts_per_token, root.number32("experts_per_token", 1, m.num_experts));
  MOE_ASSIGN_OR_RETURN(m.hidden_size, root.number("hidden_size", 1, kMaxModelDimension));
  MOE_ASSIGN_OR_RETURN(m.expert_width, root.number("expert_width", 1, kMaxModelDimension));
  MOE_ASSIGN_OR_RETURN(m.tokens, root.number("tokens", 1, kMaxCalibrationTokens));
  MOE_ASSIGN_OR_RETURN(m.context, root.number32("context", 1));
  return Status::ok();
}

std::string response_text(const std::vector<DivergenceResponse>& response) {
  std::string text = "  \"divergence_response\": [";
  for (std::size_t l = 0; l < response.size(); ++l) {
    text += (l == 0 ? "[" : ", [") + six_digits(response[l].per_energy) + ", " +
            six_digits(response[l].per_amplitude) + "]";
  }
  return text + "],\n";
}

// A number of a response, or -1.
double response_number(const nlohmann::json& node) {
  const double value = node.is_number() ? node.get<double>() : -1;
  return value >= 0 && std::isfinite(value) ? value : -1;
}

Status parse_response(const JsonFields& root, CalibrationManifest& m) {
  const char* key = "divergence_response";
  if (!root.has(key)) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* pairs, root.array(key));
  if (pairs->size() != m.num_layers) {
    return root.error(key, "has " + std::to_string(pairs->size()) + " entries, num_layers is " +
                               std::to_string(m.num_layers));
  }
  for (const nlohmann::json& pair : *pairs) {
    DivergenceResponse response{.per_energy = -1, .per_amplitude = -1};
    if (pair.is_array() && pair.size() == 2) {
      response = {.per_energy = response_number(pair[0]),
                  .per_amplitude = response_number(pair[1])};
    }
    if (response.per_energy < 0 || response.per_amplitude < 0) {
      return root.error(key, "must hold pairs of numbers that are not negative");
    }
    m.response.push_back(response);
  }
  return Status::ok();
}

}  // namespace

std::string calibration_manifest_text(const CalibrationManifest& m) {
  std::string text =
      "{\n  \"format_version\": " + std::to_string(kCalibrationFormatVersion) + ",\n";
  const auto number = [&](const char* key, std::uint64_t value) {
    text += "  \"" + std::string(key) + "\": " + std::to_string(value) + ",\n";
  };
  const auto quoted = [&](const char* key, const std::string& value) {
    text += "  \"" + std::string(key) + "\": " + json_quote(value) + ",\n";
  };
  quoted("model", m.model);
  quoted("source_fingerprint", checksum_text(m.source_fingerprint));
  quoted("residents_checksum", checksum_text(m.residents_checksum));
  number("num_layers", m.num_layers);
  number("num_experts", m.num_experts);
  number("experts_per_token", m.experts_per_token);
  number("hidden_size", m.hidden_size);
  number("expert_width", m.expert_width);
  number("tokens", m.tokens);
  number("context", m.context);
  if (!m.response.empty()) text += response_text(m.response);
  text += "  \"layers\": [";
  std::string_view separator = "\n    ";
  for (const CalibrationLayer& layer : m.layers) {
    text += separator;
    text += calibration_layer_text(layer);
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

Result<CalibrationManifest> parse_calibration_manifest(std::string_view text,
                                                       const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  MOE_RETURN_IF_ERROR(check_version(root));
  MOE_RETURN_IF_ERROR(
      root.allow_only({"format_version", "model", "source_fingerprint", "residents_checksum",
                       "num_layers", "num_experts", "experts_per_token", "hidden_size",
                       "expert_width", "tokens", "context", "divergence_response", "layers"}));
  CalibrationManifest m;
  MOE_ASSIGN_OR_RETURN(m.model, root.string("model"));
  MOE_ASSIGN_OR_RETURN(m.source_fingerprint, root.checksum("source_fingerprint"));
  MOE_ASSIGN_OR_RETURN(m.residents_checksum, root.checksum("residents_checksum"));
  MOE_RETURN_IF_ERROR(parse_dimensions(root, m));
  MOE_RETURN_IF_ERROR(parse_response(root, m));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* layers, root.array("layers"));
  if (layers->size() != m.num_layers) {
    return root.error("layers", "has " + std::to_string(layers->size()) +
                                    " entries, num_layers is " + std::to_string(m.num_layers));
  }
  const std::uint64_t uses = m.tokens * m.experts_per_token;  // < 2^56
  for (std::uint32_t i = 0; i < m.num_layers; ++i) {
    MOE_ASSIGN_OR_RETURN(CalibrationLayer layer,
                         parse_calibration_layer(root, i, m.num_experts, uses));
    m.layers.push_back(std::move(layer));
  }
  return m;
}

Result<CalibrationManifest> read_calibration_manifest(const std::filesystem::path& directory) {
  const std::string name = directory.string();
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    return not_found(Where{.file = name}, "is no directory",
                     "give a directory written by moepack calibrate");
  }
  if (std::filesystem::exists(directory / kCalibrationStateName, ignored)) {
    return corrupt(Where{.file = name}, "is a calibration that was not finished",
                   "run the same moepack calibrate again");
  }
  const std::filesystem::path file = directory / kCalibrationManifestName;
  if (!std::filesystem::exists(file, ignored)) {
    return not_found(Where{.file = name},
                     std::string("holds no calibration (") + kCalibrationManifestName + ")",
                     "give a directory written by moepack calibrate");
  }
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxSmallManifestBytes));
  MOE_ASSIGN_OR_RETURN(CalibrationManifest manifest,
                       parse_calibration_manifest(text, file.string()));
  for (const CalibrationLayer& layer : manifest.layers) {
    if (!layer.has_experts()) continue;
    MOE_ASSIGN_OR_RETURN(const File data, File::open(directory / layer.file));
    if (data.size() == layer.file_size) continue;
    return corrupt(Where{.file = data.path()},
                   "is " + std::to_string(data.size()) + " bytes long, " +
                       kCalibrationManifestName + " says " + std::to_string(layer.file_size),
                   "copy the calibration again or make it again");
  }
  return manifest;
}

std::string calibration_file_name(std::uint32_t layer) { return layer_file_name(layer) + ".zst"; }

std::string calibration_layer_text(const CalibrationLayer& layer) {
  if (!layer.has_experts()) return "{\"dense\": true}";
  std::string text =
      "{\"file\": " + json_quote(layer.file) + ", \"size\": " + std::to_string(layer.file_size) +
      ", \"checksum\": " + json_quote(checksum_text(layer.checksum)) + ", \"samples\": [";
  for (std::size_t e = 0; e < layer.samples.size(); ++e) {
    text += (e == 0 ? "" : ", ") + std::to_string(layer.samples[e]);
  }
  return text + "]}";
}

Result<CalibrationLayer> parse_calibration_layer(const JsonFields& root, std::uint32_t index,
                                                 std::uint32_t num_experts, std::uint64_t uses) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* layers, root.array("layers"));
  MOE_ASSIGN_OR_RETURN(const JsonFields fields,
                       JsonFields::of((*layers)[index], root.file(),
                                      root.path_of("layers") + "[" + std::to_string(index) + "]"));
  CalibrationLayer layer;
  MOE_ASSIGN_OR_RETURN(const bool is_dense, fields.is_dense());
  if (is_dense) return layer;
  MOE_RETURN_IF_ERROR(fields.allow_only({"file", "size", "checksum", "samples"}));
  MOE_ASSIGN_OR_RETURN(layer.file, fields.string("file"));
  if (layer.file != calibration_file_name(index)) {
    return fields.error("file", "must be " + calibration_file_name(index));
  }
  MOE_ASSIGN_OR_RETURN(layer.file_size, fields.number("size", 1));
  MOE_ASSIGN_OR_RETURN(layer.checksum, fields.checksum("checksum"));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* samples, fields.array("samples"));
  if (samples->size() != num_experts) {
    return fields.error("samples", "has " + std::to_string(samples->size()) +
                                       " numbers, num_experts is " + std::to_string(num_experts));
  }
  std::uint64_t left = uses;
  for (const nlohmann::json& node : *samples) {
    if (!node.is_number_unsigned()) return fields.error("samples", "must hold numbers of tokens");
    const auto count = node.get<std::uint64_t>();
    if (count > left) return fields.error("samples", "add up to more than the uses of experts");
    left -= count;
    layer.samples.push_back(count);
  }
  if (left == 0) return layer;
  return fields.error("samples", "add up to less than tokens times experts per token");
}

}  // namespace moepack
