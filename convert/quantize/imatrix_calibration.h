// An importance matrix of llama.cpp as a calibration: the diagonals of the Hessians, nothing else.
#pragma once

#include <filesystem>
#include <memory>

#include "convert/quantize/calibration_input.h"

namespace moepack {

// True when `path` is a file whose name or first bytes are those of an importance matrix: it ends
// in .dat or .imatrix, or is a GGUF file.
bool is_imatrix_file(const std::filesystem::path& path);

// kCorrupt or kInvalidArgument: the file is not of this model, or is not readable
// (formats/calibration/imatrix.h). The file does not say which model it belongs to; only its names
// and dimensions are compared.
Result<std::unique_ptr<CalibrationInput>> open_imatrix(const std::filesystem::path& path,
                                                       const ModelConfig& config);

}  // namespace moepack
