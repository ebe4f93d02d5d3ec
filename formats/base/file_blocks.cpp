#include "formats/base/file_blocks.h"

#include "formats/base/checksum.h"

namespace moepack {

Result<std::uint64_t> checksum_of_range(const File& file, std::uint64_t begin, std::uint64_t end,
                                        std::vector<std::byte>& buffer) {
  ChecksumStream sum;
  MOE_RETURN_IF_ERROR(for_each_block(file, begin, end, buffer,
                                     [&](std::uint64_t, std::span<const std::byte> bytes) {
                                       sum.add(bytes);
                                       return Status::ok();
                                     }));
  return sum.finish();
}

Result<std::uint64_t> checksum_of_file(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  std::vector<std::byte> buffer;
  return checksum_of_range(file, 0, file.size(), buffer);
}

Result<std::uint64_t> checksum_of_file_on_disk(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  file.drop_cache();
  std::vector<std::byte> buffer;
  return checksum_of_range(file, 0, file.size(), buffer);
}

Status copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  MOE_ASSIGN_OR_RETURN(const File source, File::open(from));
  MOE_ASSIGN_OR_RETURN(AtomicFile copy, AtomicFile::create(to));
  std::vector<std::byte> buffer;
  MOE_RETURN_IF_ERROR(for_each_block(source, 0, source.size(), buffer,
                                     [&](std::uint64_t at, std::span<const std::byte> bytes) {
                                       return copy.write_at(at, bytes);
                                     }));
  return copy.commit();
}

}  // namespace moepack
