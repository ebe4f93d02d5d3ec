#include "convert/job/read_back.h"

#include <system_error>
#include <vector>

#include "convert/job/parallel.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"

namespace moepack {
Status check_layer_file(const std::filesystem::path& directory, const PackManifest& pack,
                        std::uint32_t layer, std::size_t threads) {
  const LayerEntry& entry = pack.layers[layer];
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / entry.file));
  file.drop_cache();
  std::vector<std::vector<std::byte>> buffers(threads);
  return parallel_items(entry.experts.size(), threads, [&](std::size_t e, std::size_t w) -> Status {
    const ExpertEntry& expert = entry.experts[e];
    const std::uint64_t end = expert.offset + pack.layouts[expert.layout].record_bytes;
    MOE_ASSIGN_OR_RETURN(const std::uint64_t sum,
                         checksum_of_range(file, expert.offset, end, buffers[w]));
    if (sum == expert.checksum) return Status::ok();
    return make_error(StatusCode::kIo, Where{.file = file.path(), .offset = expert.offset},
                      "expert " + std::to_string(e) + " reads back with checksum " +
                          checksum_text(sum) + ", " + checksum_text(expert.checksum) +
                          " was written",
                      "the disk does not keep what is written to it");
  });
}

namespace {

bool has_layer_file(const std::filesystem::path& directory, const LayerEntry& entry) {
  std::error_code error;
  return std::filesystem::file_size(directory / entry.file, error) == entry.file_size && !error;
}

}  // namespace

bool take_layer_file(const std::filesystem::path& directory, PackManifest& pack,
                     std::uint32_t layer, const std::vector<std::uint64_t>& sums,
                     std::size_t threads) {
  LayerEntry& entry = pack.layers[layer];
  if (sums.size() != entry.experts.size() || !has_layer_file(directory, entry)) return false;
  for (std::size_t e = 0; e < sums.size(); ++e) entry.experts[e].checksum = sums[e];
  return check_layer_file(directory, pack, layer, threads).is_ok();
}

void forget_missing_layers(const std::filesystem::path& directory, const PackManifest& pack,
                           ConversionJournal& journal) {
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    if (journal.layer_checksums(l) == nullptr) continue;
    if (!has_layer_file(directory, pack.layers[l])) journal.forget_layer(l);
  }
}

}  // namespace moepack
