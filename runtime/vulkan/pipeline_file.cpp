#include "runtime/vulkan/pipeline_file.h"

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/output_file.h"
#include "formats/base/paths.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
// Then the checksum of what follows, XXH3-64: drivers trust what they are given.
constexpr std::string_view kMagic = "MOEPIPE\n";
constexpr std::uint64_t kHeadBytes = 16;

}  // namespace

std::span<const std::byte> pipelines_of(std::span<const std::byte> file) {
  if (file.size() <= kHeadBytes || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return {};
  }
  const auto pipelines = file.subspan(kHeadBytes);
  const auto written = load_le<std::uint64_t>(file.data() + kMagic.size());
  return written == checksum(pipelines) ? pipelines : std::span<const std::byte>();
}

std::filesystem::path default_pipeline_file() {
  const std::filesystem::path caches = user_cache_directory();
  return caches.empty() ? caches : caches / "pipelines.bin";
}

void load_pipeline_file(VulkanDevice& device, const std::filesystem::path& file) {
  const Result<std::string> text = read_text_file(file, kMostBytes);
  if (!text.is_ok()) return;
  const auto bytes = std::as_bytes(std::span<const char>(text.value()));
  const auto pipelines = pipelines_of(bytes);
  if (!pipelines.empty()) (void)device.load_pipeline_cache(pipelines);
}

void save_pipeline_file(const VulkanDevice& device, const std::filesystem::path& file) {
  const std::vector<std::byte> bytes = device.pipeline_cache();
  std::error_code error;
  const std::uintmax_t held = std::filesystem::file_size(file, error);
  const std::uint64_t whole = kHeadBytes + bytes.size();
  if (bytes.empty() || whole > kMostBytes || (!error && held >= whole)) return;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return;
  std::string text(kHeadBytes, '\0');
  kMagic.copy(text.data(), kMagic.size());
  store_le(text.data() + kMagic.size(), checksum(bytes));
  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  (void)write_output_text(file, text);
}

}  // namespace moepack
