// How an engine is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/model/activation_type.h"
#include "runtime/model/cold_experts.h"
#include "runtime/model/kv_encoding.h"
#include "runtime/model/model_selection.h"
#include "runtime/model/router.h"
#include "runtime/placement/hot_options.h"
#include "runtime/placement/hot_set.h"
#include "runtime/store/store_options.h"
#include "runtime/store/timeline.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

struct EngineOptions : ModelSelection {
  std::uint64_t context = 4096;   // most tokens of a sequence
  std::uint32_t sequences = 1;    // most sequences at the same time
  std::uint64_t cache_bytes = 0;  // 0: chosen from the memory there is
  // Memory of the machine that may be used; nullopt: what the system can give
  // (model/available_memory.h).
  std::optional<std::uint64_t> available_bytes = {};
  // Tokens computed at once; 0: chosen from the memory there is (model/chunk_choice.h).
  std::uint32_t chunk_tokens = 512;
  ActivationType activations = ActivationType::kFloat32;
  // Of keys and values; the reference backend has float32 alone.
  KvEncoding kv_encoding = KvEncoding::kFloat32;
  // A sequence is saved or restored while others are there: its bytes are in the memory plan.
  bool saves_sequence = false;
  // Snapshots of sequences that the caller keeps (SchedulerOptions::snapshot_bytes): they are in
  // the memory plan too.
  std::uint64_t snapshot_bytes = 0;
  StoreOptions store = {};     // how experts are read and kept
  CacheAwareRouting car = {};  // of the cpu backend
  // Of the vulkan backend, where not all experts fit on the device; with kCpu what is kept there:
  // nullopt: as `hot` says.
  ColdExperts cold_experts = ColdExperts::kFetch;
  std::optional<HotSet> hot_experts = {};
  HotOptions hot = {};
  StageOrdering gpu_order = StageOrdering::kAuto;
  std::filesystem::path pipeline_file = {};  // of the vulkan backend: vulkan/pipeline_file.h
  // Notes reads, and the stages of the cpu backends; may be null, outlives the engine.
  Timeline* timeline = nullptr;
  // Of the vulkan backend, for tests: as if the device were so. `device` is ModelSelection's.
  VulkanOptions device_limits = {};

  VulkanOptions vulkan_options() const {
    VulkanOptions vulkan = device_limits;
    vulkan.device = device;
    vulkan.ordering = gpu_order;
    return vulkan;
  }
};

}  // namespace moepack
