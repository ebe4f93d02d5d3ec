// One model over several devices: each computes a range of its layers with weights, states and
// experts of its own, and hands the residual stream to the next through the host's memory.
//
// A row's bits are those of one device of the same kind: the same kernels compute every layer, and
// what is passed on are the float32 values themselves.
#pragma once

#include <memory>
#include <vector>

#include "runtime/model/stage_times.h"
#include "runtime/placement/layer_split.h"
#include "runtime/vulkan/vulkan_forward.h"

namespace moepack {

// `ranges`: the layers of each stage. `stages`: at least one, in the order of their layers, the
// first of which begins and the last ends (StagePlace), all for batches of equal size; `times` is
// what all of them credit. No pool of threads: a batch passes through one device after the other.
std::unique_ptr<VulkanBackend> make_device_pipeline(
    std::vector<std::unique_ptr<VulkanBackend>> stages, std::vector<LayerRange> ranges,
    std::shared_ptr<StageTimes> times);

}  // namespace moepack
