// Runs a text through a model, layer by layer, and records what every layer's experts were given
// (formats/calibration/calibration.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/calibration.h"
#include "runtime/corpus/corpus_forward.h"
#include "runtime/model/model_selection.h"

namespace moepack {

struct CalibrateOptions : ModelSelection {
  std::filesystem::path output;
  std::uint32_t context = 512;        // tokens of a window
  std::uint64_t max_tokens = 0;       // 0: all
  std::uint64_t probe_tokens = 1024;  // at most so many measure the response; 0: none do
  bool restart = false;               // drop an unfinished calibration of something else
};

struct CalibrateProgress {
  std::uint64_t tokens_done = 0;  // tokens times layers
  std::uint64_t tokens_total = 0;
  std::uint32_t layers_done = 0;
  std::uint32_t layers_total = 0;
  bool is_response = false;  // all layers are recorded; now the response of each is measured
};

struct CalibrateReport {
  CalibrationManifest manifest;  // a dry run's has no layers
  std::string kernels;
  std::uint64_t text_tokens = 0;  // of the whole text
  std::uint64_t windows = 0;
  std::uint64_t layer_bytes = 0;   // of a layer, before compression
  std::uint64_t total_bytes = 0;   // of all layers; a dry run's: expected
  std::uint64_t needed_bytes = 0;  // free space at the fullest, if nothing could be compressed
  // In the output's file system; nullopt: unknown.
  std::optional<std::uint64_t> free_bytes;
  std::uint64_t memory_bytes = 0;
  std::uint64_t available_bytes = 0;  // memory that the machine can give; 0: unknown
  std::uint64_t read_bytes = 0;       // of expert records
  std::uint32_t layers_resumed = 0;
  double seconds = 0;
  double estimated_seconds = 0;  // of a dry run; 0: unknown
};

// The windows of a text of `tokens` tokens that make up a calibration of at most `max_tokens` (0:
// all). Where the text is longer, they are whole windows that are spread evenly over it, the last
// one cut to the rest. Their `first` are positions in the text, ascending.
std::vector<TokenWindow> choose_windows(std::uint64_t tokens, std::uint32_t context,
                                        std::uint64_t max_tokens);

// Checks everything, and tells sizes, memory and time by trying a little of it; nothing is left
// behind.
Result<CalibrateReport> plan_calibration(const CalibrateOptions& options,
                                         std::span<const std::int32_t> tokens);

// Calibrates with the text `tokens`. The result's bytes depend on model, text, context, max_tokens
// and kernels alone. An interrupted calibration is continued by the next call with the same
// options. `progress` is called in the calling thread.
Result<CalibrateReport> calibrate(const CalibrateOptions& options,
                                  std::span<const std::int32_t> tokens,
                                  const std::function<void(const CalibrateProgress&)>& progress);

}  // namespace moepack
