// The forward backend of a GPU: weights, states and everything between the token ids and the logits
// lie and are computed on the device. With all experts there, a batch is one submission; else the
// host sees the router's choices of every layer, and brings what is missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/model/activation_type.h"
#include "runtime/model/forward_backend.h"
#include "runtime/model/kernels.h"
#include "runtime/model/kv_encoding.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/stage_times.h"
#include "runtime/placement/hot_set.h"
#include "runtime/placement/lane_counter.h"
#include "runtime/placement/slot_planner.h"
#include "runtime/store/expert_store.h"
#include "runtime/vulkan/device_work.h"
#include "runtime/vulkan/stage_port.h"
#include "runtime/vulkan/vulkan_device.h"
#include "runtime/vulkan/vulkan_plan.h"

namespace moepack {

// Experts that are not on the device computed by the processor (cold_lane.h).
struct ColdLaneUse {
  const Kernels* kernels = nullptr;  // null: missing experts are fetched
  std::uint64_t threads = 1;
  ActivationType activations = ActivationType::kFloat32;
  std::optional<HotSet> hot = {};  // what is kept on the device; nullopt: flat_hot_set()
  bool counts = false;             // lane_counter() is there
};

struct VulkanForwardOptions {
  std::uint64_t context = 0;    // most tokens of a sequence
  std::uint64_t sequences = 1;  // most slices of a batch
  std::uint64_t rows = 0;       // most tokens of a batch
  KvEncoding kv_encoding = KvEncoding::kFloat32;
  // Products of many rows in float32, not in 16-bit floats on cooperative matrices.
  bool is_exact = true;
  std::filesystem::path pipeline_file = {};  // of compiled kernels (pipeline_file.h); empty: none
  VulkanPlan plan;
  std::size_t threads = 1;  // that bring records into the device's memory
  ColdLaneUse cold = {};    // of batches of few rows, where not all experts fit
  StagePlace place = {};    // of the model's layers: all, or those of a device among several
  std::shared_ptr<StageTimes> times = nullptr;  // what is credited; null: the backend's own
};

class VulkanBackend : public ForwardBackend {
 public:
  virtual const VulkanDeviceInfo& device() const = 0;
  virtual DeviceReport report() const = 0;
  // device_read_rate() of its device.
  virtual Result<double> read_rate() = 0;

  // With a cold lane; not while a batch is under way.

  // Whether experts are kept on the device, beside a cold lane.
  virtual bool keeps_experts() const = 0;
  // LaneCounter::all() and recent(); nullopt where nothing is counted (ColdLaneUse::counts).
  virtual std::optional<LaneUse> lane_use() const = 0;
  virtual std::optional<LaneUse> recent_lane_use() const = 0;
  // LaneCounter::fade(), where it counts.
  virtual void fade_lane_use() = 0;
  // Begins with nothing counted, or ends it.
  virtual void count_lanes(bool is_counting) = 0;
  // exchange_hot() (hot_exchange.h) of the kept experts; kUnsupported without a cold lane. What
  // an expert's lane is decides the last bits of results: they may differ afterwards.
  virtual Result<HotChange> exchange_hot(const SlotScores& scores, double rate) = 0;

  // Of a device among several (StagePort): what the next batch begins with, and what the last one
  // ended with, [rows, H].
  virtual std::span<float> hidden_in(std::size_t rows) = 0;
  virtual std::span<const float> hidden_out(std::size_t rows) const = 0;
};

// An observer of a batch sees the router's logits of every layer and the output of the last one,
// and costs a submission a layer.
//
// With VulkanForwardOptions::place other than all, `config`, `weights`, `pack` and `store` are of
// those layers alone (stage_model.h).
//
// Takes `device` and `store`; copies the weights, which may go afterwards. `pack` is copied. With
// VulkanPlan::holds_all_experts every expert is read once, here; with a cold lane the hot ones are.
// kInvalidArgument for a hot set that is not the model's or has no room.
Result<std::unique_ptr<VulkanBackend>> make_vulkan_forward(std::unique_ptr<VulkanDevice> device,
                                                           const ModelConfig& config,
                                                           const ModelWeights& weights,
                                                           const PackManifest& pack,
                                                           std::unique_ptr<ExpertStore> store,
                                                           const VulkanForwardOptions& options);

}  // namespace moepack
