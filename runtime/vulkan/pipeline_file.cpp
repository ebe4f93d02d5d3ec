#include "runtime/vulkan/pipeline_file.h"

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/output_file.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

std::filesystem::path from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::filesystem::path() : value;
}

}  // namespace

std::filesystem::path default_pipeline_file() {
  std::filesystem::path caches = from_environment("XDG_CACHE_HOME");
  if (caches.empty()) {
    const std::filesystem::path home = from_environment("HOME");
    if (home.empty()) return {};
    caches = home / ".cache";
  }
  return caches / "moepack" / "pipelines.bin";
}

void load_pipeline_file(VulkanDevice& device, const std::filesystem::path& file) {
  const Result<std::string> text = read_text_file(file, kMostBytes);
  if (!text.is_ok()) return;
  (void)device.load_pipeline_cache(std::as_bytes(std::span<const char>(text.value())));
}

void save_pipeline_file(const VulkanDevice& device, const std::filesystem::path& file) {
  const std::vector<std::byte> bytes = device.pipeline_cache();
  std::error_code error;
  const std::uintmax_t held = std::filesystem::file_size(file, error);
  if (bytes.empty() || bytes.size() > kMostBytes || (!error && held >= bytes.size())) return;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return;
  (void)write_output_text(
      file, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace moepack
