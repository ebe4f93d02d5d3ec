#include "convert/read_back.h"

#include <algorithm>
#include <vector>

#include "convert/parallel.h"
#include "formats/checksum.h"
#include "formats/file.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

Result<std::uint64_t> checksum_of_range(const File& file, std::uint64_t begin, std::uint64_t size,
                                        std::vector<std::byte>& buffer) {
  buffer.resize(std::min(kBlockBytes, size));
  ChecksumStream sum;
  for (std::uint64_t at = 0; at < size; at += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - at));
    MOE_RETURN_IF_ERROR(file.read_at(begin + at, part));
    sum.add(part);
  }
  return sum.finish();
}

}  // namespace

Result<std::uint64_t> checksum_of_file(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  file.drop_cache();
  std::vector<std::byte> buffer;
  return checksum_of_range(file, 0, file.size(), buffer);
}

Status check_layer_file(const std::filesystem::path& directory, const PackManifest& pack,
                        std::uint32_t layer, std::size_t threads) {
  const LayerEntry& entry = pack.layers[layer];
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / entry.file));
  file.drop_cache();
  std::vector<std::vector<std::byte>> buffers(threads);
  return parallel_items(entry.experts.size(), threads, [&](std::size_t e, std::size_t w) -> Status {
    const ExpertEntry& expert = entry.experts[e];
    MOE_ASSIGN_OR_RETURN(const std::uint64_t sum,
                         checksum_of_range(file, expert.offset,
                                           pack.layouts[expert.layout].record_bytes, buffers[w]));
    if (sum == expert.checksum) return Status::ok();
    return make_error(StatusCode::kIo, Where{.file = file.path(), .offset = expert.offset},
                      "expert " + std::to_string(e) + " reads back with checksum " +
                          checksum_text(sum) + ", " + checksum_text(expert.checksum) +
                          " was written",
                      "the disk does not keep what is written to it");
  });
}

}  // namespace moepack
