#include "runtime/store/record_check.h"

#include <string>

#include "formats/base/checksum.h"

namespace moepack {

RecordCheck::RecordCheck(const PackManifest& manifest,
                         const std::vector<std::filesystem::path>& files)
    : manifest_(manifest), passed_(std::size_t{manifest.num_layers} * manifest.num_experts) {
  for (const std::filesystem::path& file : files) files_.push_back(file.string());
}

bool RecordCheck::is_due(std::uint32_t layer, std::uint32_t expert) const {
  return manifest_.has_checksums && !passed_[std::size_t{layer} * manifest_.num_experts + expert];
}

Status RecordCheck::compare(std::uint32_t layer, std::uint32_t expert, std::uint64_t sum) {
  const ExpertEntry& entry = manifest_.layers[layer].experts[expert];
  if (sum == entry.checksum) {
    passed_[std::size_t{layer} * manifest_.num_experts + expert] = true;
    return Status::ok();
  }
  return corrupt(Where{.file = files_[layer], .offset = entry.offset},
                 "expert " + std::to_string(expert) + " has checksum " + checksum_text(sum) + ", " +
                     kPackManifestName + " says " + checksum_text(entry.checksum),
                 "the file is damaged; convert the checkpoint again");
}

}  // namespace moepack
