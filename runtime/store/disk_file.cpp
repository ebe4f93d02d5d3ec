#include "runtime/store/disk_file.h"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/output_file.h"
#include "formats/base/paths.h"

namespace moepack {
namespace {

// Its digit is the version. Then the checksum of what follows, XXH3-64, and the entries.
constexpr std::string_view kDiskMagic = "MOEDISK1";
constexpr std::size_t kHeadBytes = 16;
constexpr std::size_t kEntryNumbers = 5;
constexpr std::size_t kEntryBytes = kEntryNumbers * sizeof(std::uint64_t);
constexpr std::size_t kMostDisks = 256;

}  // namespace

std::optional<DiskId> disk_of(const std::filesystem::path& file) {
  struct stat info {};
  struct statfs system {};
  if (::stat(file.c_str(), &info) != 0 || ::statfs(file.c_str(), &system) != 0) return std::nullopt;
  DiskId id{.device = info.st_dev, .type = static_cast<std::uint64_t>(system.f_type)};
  static_assert(sizeof(system.f_fsid) == sizeof(id.file_system));
  std::memcpy(&id.file_system, &system.f_fsid, sizeof(id.file_system));
  return id;
}

std::filesystem::path default_disk_file() {
  const std::filesystem::path caches = user_cache_directory();
  return caches.empty() ? caches : caches / "disks.bin";
}

std::vector<KnownDisk> disks_of(std::span<const std::byte> file) {
  if (file.size() < kHeadBytes || (file.size() - kHeadBytes) % kEntryBytes != 0 ||
      std::memcmp(file.data(), kDiskMagic.data(), kDiskMagic.size()) != 0 ||
      load_le<std::uint64_t>(file.data() + kDiskMagic.size()) !=
          checksum(file.subspan(kHeadBytes))) {
    return {};
  }
  std::vector<KnownDisk> disks;
  for (std::size_t at = kHeadBytes; at < file.size(); at += kEntryBytes) {
    const auto number = [&](std::size_t i) {
      return load_le<std::uint64_t>(file.data() + at + i * sizeof(std::uint64_t));
    };
    disks.push_back({.id = {.device = number(0), .type = number(1), .file_system = number(2)},
                     .rates = {.direct = number(3), .buffered = number(4)}});
  }
  return disks;
}

std::vector<std::byte> disk_file_bytes(std::span<const KnownDisk> disks) {
  std::vector<std::byte> bytes(kHeadBytes + disks.size() * kEntryBytes);
  std::byte* at = bytes.data() + kHeadBytes;
  for (const KnownDisk& disk : disks) {
    for (const std::uint64_t number : {disk.id.device, disk.id.type, disk.id.file_system,
                                       disk.rates.direct, disk.rates.buffered}) {
      store_le(at, number);
      at += sizeof(number);
    }
  }
  std::memcpy(bytes.data(), kDiskMagic.data(), kDiskMagic.size());
  store_le(bytes.data() + kDiskMagic.size(), checksum(std::span(bytes).subspan(kHeadBytes)));
  return bytes;
}

namespace {

std::vector<KnownDisk> read_disks(const std::filesystem::path& file) {
  const Result<std::string> text = read_text_file(file, kHeadBytes + kMostDisks * kEntryBytes);
  if (!text.is_ok()) return {};
  return disks_of(std::as_bytes(std::span<const char>(text.value())));
}

}  // namespace

std::optional<DiskRates> recall_disk(const std::filesystem::path& file, const DiskId& id) {
  if (file.empty()) return std::nullopt;
  for (const KnownDisk& disk : read_disks(file)) {
    if (disk.id == id) return disk.rates;
  }
  return std::nullopt;
}

void remember_disk(const std::filesystem::path& file, const KnownDisk& disk) {
  if (file.empty()) return;
  std::vector<KnownDisk> disks = read_disks(file);
  disks.erase(std::remove_if(disks.begin(), disks.end(),
                             [&](const KnownDisk& other) { return other.id == disk.id; }),
              disks.end());
  if (disks.size() >= kMostDisks) disks.erase(disks.begin());  // the oldest
  disks.push_back(disk);
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  const std::vector<std::byte> bytes = disk_file_bytes(disks);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!error) (void)write_output_text(file, text);
}

}  // namespace moepack
