#include "convert/export/flashmoe/resident_reader.h"

#include <algorithm>

#include "formats/base/checksum.h"
#include "formats/pack/resident_files.h"

namespace moepack {
namespace {

constexpr std::uint64_t kBufferBytes = std::uint64_t{2} << 20;

}  // namespace

Result<ResidentReader> ResidentReader::open(const ModelDir& model) {
  ResidentReader reader;
  for (const ResidentFile& part : resident_files(model.residents)) {
    MOE_ASSIGN_OR_RETURN(File file, File::open(model.path / part.name));
    reader.files_.push_back({std::move(file), part.begin});
  }
  return reader;
}

Status ResidentReader::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t i = files_.size() - 1;
  while (files_[i].begin > offset) --i;
  return files_[i].file.read_at(offset - files_[i].begin, out);
}

Status ResidentReader::verify(const ModelDir& model) const {
  if (!model.residents.has_checksum) return Status::ok();
  std::vector<std::byte> buffer(kBufferBytes);
  ChecksumStream sum;
  for (const auto& [file, begin] : files_) {
    for (std::uint64_t at = 0; at < file.size(); at += buffer.size()) {
      const std::span<std::byte> part =
          std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), file.size() - at));
      MOE_RETURN_IF_ERROR(file.read_at(at, part));
      sum.add(part);
    }
  }
  if (sum.finish() == model.residents.checksum) return Status::ok();
  return corrupt(Where{.file = files_.front().file.path()},
                 "checksum is " + checksum_text(sum.finish()) + ", " + kResidentManifestName +
                     " says " + checksum_text(model.residents.checksum),
                 "the file is damaged; convert the checkpoint again");
}

}  // namespace moepack
