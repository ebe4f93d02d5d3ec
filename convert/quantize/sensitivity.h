// Measures what every expert loses at several widths (quant/expert_damage.h) and what that does to
// the predictions: the table that bits are allocated from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "convert/quantize/sensitivity_table.h"
#include "formats/base/status.h"
#include "quant/quantize_matrix.h"

namespace moepack {

// The file of measurements in a model directory, unless another one is named.
constexpr const char* kSensitivityName = "sensitivity.json";

struct SensitivityOptions {
  std::filesystem::path model;
  std::string from;  // as ExpertWeights::open takes it
  std::filesystem::path calibration;
  QuantMethod method = QuantMethod::kGptq;
  std::vector<std::uint32_t> bits{2, 3, 4};  // of 2, 3, 4, 5, 6, 8
  std::uint32_t group_size = 64;
  std::uint32_t rows = 64;             // of each matrix that are tried; 0: all
  std::filesystem::path measurements;  // file to keep them in, and to take them from
  unsigned threads = 0;
  bool restart = false;  // drop measurements of something else
  // Called with the table's head before anything is measured; an error ends it there. May be empty.
  std::function<Status(const SensitivityTable&)> check;
};

struct SensitivityReport {
  SensitivityTable table;
  std::string source;  // of the weights, for people
  std::string calibration;
  std::vector<std::string> notes;
  std::size_t layers_resumed = 0;
  std::uint64_t memory_bytes = 0;  // at most, at once
  double seconds = 0;
  double estimated_seconds = 0;  // of a dry run
};

// Checks everything and writes nothing; measuring one expert tells the time. The report's table has
// the layers that were measured before.
Result<SensitivityReport> plan_sensitivity(const SensitivityOptions& options);

// Measures layer by layer, and enters each in the file of measurements when it is done; so an
// interrupted run is continued, and a finished one is only read. kInvalidArgument: the calibration
// has no response (it is of an older moepack or of another engine), or the file is of something
// else.
Result<SensitivityReport> measure_sensitivity(const SensitivityOptions& options,
                                              const ProgressCallback& progress);

}  // namespace moepack
