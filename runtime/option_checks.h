// Options of an engine that do not go together, or not with a backend: the same refusals whether a
// model is opened (backend_opening.h) or planned (run_plan.h).
#pragma once

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/engine_options.h"

namespace moepack {

// kInvalidArgument or kUnsupported, naming the flags. Of the reference and cpu backends.
Status check_cpu_options(const EngineOptions& options, const ModelConfig& config);
// kInvalidArgument for a hot set that --cold-experts leaves no use for, or two of them.
Status check_hot_options(const EngineOptions& options);
// Of the vulkan backend.
Status check_device_options(const EngineOptions& options);

}  // namespace moepack
