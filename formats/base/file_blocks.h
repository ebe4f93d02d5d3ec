// A range of a file, a mebibyte at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"

namespace moepack {

constexpr std::uint64_t kFileBlockBytes = std::uint64_t{1} << 20;

// Calls use(offset, bytes), which returns a Status, for the pieces of [begin, end) in order; an
// error ends it. `buffer` holds the pieces and may be used again.
template <typename Use>
Status for_each_block(const File& file, std::uint64_t begin, std::uint64_t end,
                      std::vector<std::byte>& buffer, const Use& use) {
  buffer.resize(std::min(kFileBlockBytes, end - begin));
  for (std::uint64_t at = begin; at < end; at += kFileBlockBytes) {
    const std::span<std::byte> part = std::span(buffer).first(std::min(kFileBlockBytes, end - at));
    MOE_RETURN_IF_ERROR(file.read_at(at, part));
    MOE_RETURN_IF_ERROR(use(at, std::span<const std::byte>(part)));
  }
  return Status::ok();
}

// XXH3-64 of bytes [begin, end) of a file.
Result<std::uint64_t> checksum_of_range(const File& file, std::uint64_t begin, std::uint64_t end,
                                        std::vector<std::byte>& buffer);

// XXH3-64 of a whole file.
Result<std::uint64_t> checksum_of_file(const std::filesystem::path& path);
// The same of what the disk holds, past the system's cache.
Result<std::uint64_t> checksum_of_file_on_disk(const std::filesystem::path& path);

// `from`, block by block, under the name `to` once it is complete and synced.
Status copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace moepack
