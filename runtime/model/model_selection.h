// Which model is run, and on what: the part of the options that every way of running a model has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/model/backend.h"

namespace moepack {

struct ModelSelection {
  std::filesystem::path model;
  std::string pack;  // as open_model_dir takes it
  std::vector<OverlayGroup> overlays;
  Backend backend = Backend::kCpu;
  CpuLevel cpu_level = CpuLevel::kScalar;  // of the cpu backend
  std::uint32_t threads = 1;
  std::optional<std::uint32_t> device;  // of the vulkan backend; nullopt: the best
  std::uint64_t vram_bytes = 0;         // device memory it may take; 0: what is free
  // Devices that share the layers, in this order; one may stand there twice. Fewer than two: one
  // device, as above. With them vram_bytes is for each.
  std::vector<std::uint32_t> devices = {};
  std::vector<double> tensor_split = {};  // their shares of the layers; empty: by free memory
};

// What a selection names.
struct SelectedModel {
  const Kernels* kernels = nullptr;
  ModelDir dir;
};
// The errors of backend_kernels and of open_model_dir, which takes `further`; kInvalidArgument
// without threads.
Result<SelectedModel> open_selected_model(const ModelSelection& selection,
                                          std::span<const std::filesystem::path> further = {});

}  // namespace moepack
