// What was measured of disks, kept in a file from run to run, so that a model opens without a
// measurement the next time. The file is a help and nothing more: whatever is wrong with it, disks
// are measured again and it is written anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace moepack {

// Which disk a file lies on: its device, and the kind and the identity of the file system there.
struct DiskId {
  std::uint64_t device = 0;
  std::uint64_t type = 0;
  std::uint64_t file_system = 0;
  bool operator==(const DiskId&) const = default;
};
// nullopt where the system does not tell.
std::optional<DiskId> disk_of(const std::filesystem::path& file);

// Bytes a second at random places, at the requests of experts.
struct DiskRates {
  std::uint64_t direct = 0;    // past the page cache
  std::uint64_t buffered = 0;  // through it, of what it does not have
};

struct KnownDisk {
  DiskId id;
  DiskRates rates;
};

// Where the user's caches lie (user_cache_directory()), then disks.bin; empty when nowhere.
std::filesystem::path default_disk_file();

// The disks in a file of these bytes; none when it is not whole, or none of ours. Pure.
std::vector<KnownDisk> disks_of(std::span<const std::byte> file);
// The bytes of such a file.
std::vector<std::byte> disk_file_bytes(std::span<const KnownDisk> disks);

// What `file` has of the disk.
std::optional<DiskRates> recall_disk(const std::filesystem::path& file, const DiskId& id);
// Adds the disk to the file, or replaces it there; the directory is made. Nothing happens where
// that cannot be, nor with an empty path.
void remember_disk(const std::filesystem::path& file, const KnownDisk& disk);

}  // namespace moepack
