// From options to a backend that is ready to compute: which one, what memory it takes, and the
// model in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/device_use.h"
#include "runtime/engine_options.h"
#include "runtime/model/forward_backend.h"
#include "runtime/model/memory_plan.h"
#include "runtime/model/model_size.h"
#include "runtime/store/io_choice.h"
#include "runtime/store/kept_records.h"

namespace moepack {

struct OpenedBackend {
  std::unique_ptr<ForwardBackend> backend;
  Backend chosen = Backend::kCpu;
  std::string choice;  // with kAuto: which was taken and why
  ModelConfig config;
  MemoryPlan plan;                  // of the machine's memory
  std::optional<DeviceUse> device;  // of the vulkan backend
  PackFiles files;                  // where experts lie
  std::uint32_t lookahead = 0;      // of the cpu backends: experts that are read ahead for a token
  ProfiledModel profiled;           // what a profile of experts must agree with
  IoChoice io;                      // how experts are read
  ModelSize size;
  std::filesystem::path layer_file;  // of the expert pack: one of them
  std::uint64_t fingerprint = 0;     // model_fingerprint()
  std::uint32_t chunk_tokens = 0;
  std::uint64_t cut_tokens = 1;   // Engine::cut_tokens()
  std::uint64_t decode_rows = 1;  // Engine::decode_rows()
};

// The errors of Engine::open.
Result<OpenedBackend> open_backend(const EngineOptions& options);

}  // namespace moepack
