// What `moepack plan` can be asked about, as the model directory that it is or would become.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/engine_options.h"
#include "runtime/store/pack_files.h"

namespace moepack::cli {

struct PlanSource {
  ModelDir dir = {};                // made from heads alone, unless is_model
  std::string kind = {};            // "model", "checkpoint", "gguf", "headers"
  bool is_model = false;            // there is nothing left to convert
  PackFiles files = {};             // with is_model
  std::filesystem::path file = {};  // whose disk can be measured; empty: only the directory's
  std::filesystem::path directory = {};
  std::uint64_t converted_bytes = 0;    // that a conversion would write; 0 of a model
  std::vector<std::string> notes = {};  // what was assumed, one sentence each
};

// Reads manifests, heads of files and config.json, never weights. `selection` is of a model
// directory, `convert` of what is still to be converted. The errors of the readers.
Result<PlanSource> open_plan_source(const EngineOptions& selection, const ConvertOptions& convert);

}  // namespace moepack::cli
