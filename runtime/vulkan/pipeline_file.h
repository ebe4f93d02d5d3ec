// Compiled pipelines kept in a file from run to run: opening a model compiles dozens of kernels,
// which some drivers do slowly and remember nowhere. The file is a help and nothing more: whatever
// is wrong with it, kernels are compiled again.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

// Where the user's caches lie: XDG_CACHE_HOME or HOME/.cache, then moepack/pipelines.bin; empty
// when neither is set.
std::filesystem::path default_pipeline_file();

// What a file of these bytes holds for the driver; empty when the file is not whole, or none of
// ours. Pure.
std::span<const std::byte> pipelines_of(std::span<const std::byte> file);

// Gives the device what the file holds. A file that cannot be read, is too large, or was written
// through another device or driver is left out.
void load_pipeline_file(VulkanDevice& device, const std::filesystem::path& file);
// Writes the device's pipelines where they have become more than what the file holds; its directory
// is made. Nothing happens where that cannot be.
void save_pipeline_file(const VulkanDevice& device, const std::filesystem::path& file);

}  // namespace moepack
