// The kernels of a forward pass as recorded commands. There are two ways to compute a batch, with
// the same interface: few rows, each with its own reads of the matrices (few_rows_path.h), and many
// rows in tiles (prompt_path.h). A row's results depend on which of the two computed it, on nothing
// else of the batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/config/model_config.h"
#include "runtime/model/kv_encoding.h"
#include "runtime/vulkan/batch_tables.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/device_experts.h"
#include "runtime/vulkan/device_scratch.h"
#include "runtime/vulkan/device_weights.h"
#include "runtime/vulkan/kernel_set.h"
#include "runtime/vulkan/mixer_shapes.h"

namespace moepack {

// What recording needs; all of it outlives the recorded lists.
struct PathParts {
  const ModelConfig& config;
  const VulkanDeviceInfo& device;
  KernelSet& kernels;
  const DeviceWeights& weights;
  const DeviceExperts& experts;
  const DeviceScratch& scratch;
  const BatchTables& tables;
  const DeviceBuffer& scratch_buffer;  // that `scratch` lies in
  KvEncoding kv_encoding = KvEncoding::kFloat32;
  std::uint64_t context = 0;  // most keys of a sequence
  // Work groups over the outputs of expert products, one grid each (expert_grid_widths()).
  std::vector<std::uint32_t> grid_widths;
};

// The distinct numbers of work groups that products of experts take over their outputs in the path
// of many rows: the grids at DeviceScratch::grids, whose first numbers are these.
std::vector<std::uint32_t> expert_grid_widths(const ModelConfig& config);

// What a recorded list depends on.
struct BatchShape {
  std::uint32_t rows = 0;
  std::uint32_t slices = 0;
  std::uint32_t most_rows = 0;  // of a slice

  auto operator<=>(const BatchShape&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Each function records its kernels with a barrier behind them, so that the next one sees what they
// wrote. An error of making a kernel is KernelSet::status().
class Path {
 public:
  virtual ~Path() = default;
  // Called first for each list, with no barrier before what embed() or another way in records.
  virtual void begin(CommandList& list, const BatchShape& shape) = 0;
  // The parts as the list has them after what was recorded so far: where hidden lies, for instance.
  virtual const PathParts& parts() const = 0;
  // hidden = embedding of the rows' tokens; row_error is cleared.
  virtual void embed(CommandList& list, const BatchShape& shape) = 0;
  // hidden += mixer(norm(hidden)); the router's choices.
  virtual void mix(CommandList& list, const BatchShape& shape, std::uint32_t layer) = 0;
  virtual void route(CommandList& list, const BatchShape& shape, std::uint32_t layer) = 0;
  // The results of the chosen experts that are on the device, and at last hidden += their sum, or
  // what the layer makes of it (DeviceMoe::is_plain_sum). The path of few rows computes down in
  // add_experts() where sums are plain, and adds what is on the device then; that of many rows adds
  // all that run_experts() has ever computed of the layer.
  virtual void run_experts(CommandList& list, const BatchShape& shape, std::uint32_t layer) = 0;
  virtual void add_experts(CommandList& list, const BatchShape& shape, std::uint32_t layer) = 0;
};

}  // namespace moepack
