// Files: positioned reads, output that appears whole or not at all, aligned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// A file open for reading. Move-only; read_at may be called from any number of threads.
class File {
 public:
  // Directories, sockets and the like are refused; symbolic links are followed.
  static Result<File> open(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // bytes, at the time of open
  int fd() const { return fd_; }
  // Whether `path` (links followed) still names the file that was opened. False when it is gone.
  bool is_at(const std::filesystem::path& path) const;
  // Gives the descriptor back, and with it the space of a file without a name; path() and size()
  // stay. Nothing may be read any more.
  void close();

  // Fills `out` from byte `offset` on. A file that ends early is kCorrupt with the offset.
  // `tensor`: what the bytes belong to, for the message.
  Status read_at(std::uint64_t offset, std::span<std::byte> out,
                 std::string_view tensor = {}) const;
  // Asks the system to forget what it caches of the file, so that the next read is the disk's.
  void drop_cache() const;

 private:
  File(int fd, std::string path, std::uint64_t size)
      : fd_(fd), path_(std::move(path)), size_(size) {}
  int fd_ = -1;
  std::string path_;
  std::uint64_t size_ = 0;
};

// Alignment of direct writes: that of every disk in use.
constexpr std::size_t kDirectUnit = 4096;

// A file being written under a temporary name beside its final one. commit() syncs and renames it;
// without commit the destructor removes it, so no reader ever sees half of it.
// write_at may be called from several threads on disjoint ranges; the rest is single-threaded.
class AtomicFile {
 public:
  // A file of a directory that one run has to itself: its temporary name is FINAL.tmp, and what a
  // killed run left under it is replaced. A path that a user gave is for create_output_file().
  static Result<AtomicFile> create(const std::filesystem::path& final_path);
  // Takes over `fd`, a new file that the caller made as `temporary`, beside `final_path`.
  static AtomicFile adopt(int fd, std::filesystem::path temporary,
                          std::filesystem::path final_path);
  // A scratch file in `directory` that has no name any more and goes with the object; commit() is
  // not for it.
  static Result<AtomicFile> create_unnamed(const std::filesystem::path& directory);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  Status write_at(std::uint64_t offset, std::span<const std::byte> data);
  // From now on write_at passes whole pages (offset, memory and size at multiples of kDirectUnit)
  // to the disk without a copy in the system's cache, which costs more than the disk does; other
  // parts go through the cache as before. No effect where the file system cannot do that. Pages
  // must not be written both ways. Call before any write.
  void write_directly();
  // Extends or cuts the file to `size` bytes (new bytes are zero), taking the space at once where
  // the file system can: a full disk shows here and not halfway.
  Status resize(std::uint64_t size);
  // Asks the system to start writing these bytes to the disk, so that commit() waits less.
  void start_writeback(std::uint64_t offset, std::uint64_t size);
  // Waits until everything written so far is on the disk.
  Status sync();
  Status commit();

 private:
  // 0, or the error number; `done` counts what was written.
  static int write_some(int fd, std::uint64_t offset, std::span<const std::byte> data,
                        std::size_t& done);
  AtomicFile(int fd, std::filesystem::path temporary, std::filesystem::path final_path)
      : fd_(fd), temporary_(std::move(temporary)), final_(std::move(final_path)) {}
  void discard();
  int fd_ = -1;
  int direct_fd_ = -1;  // the same file, open for direct writes; -1 without
  std::filesystem::path temporary_;
  std::filesystem::path final_;
};

// Reads a whole small file (configuration, manifest). Larger than `max_bytes`: kCorrupt.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);
// Writes through AtomicFile::create.
Status write_text_file(const std::filesystem::path& path, std::string_view text);
// Makes a rename or creation inside `directory` durable.
Status sync_directory(const std::filesystem::path& directory);
// Creates `path` and the directories above it that are missing, durably. Each is appended to
// `created`, outermost first, also when a later one fails.
Status create_directories(const std::filesystem::path& path,
                          std::vector<std::filesystem::path>& created);

// `path`, or the lowest directory above it that exists.
std::filesystem::path existing_parent(const std::filesystem::path& path);
// Bytes that can still be written to the file system of existing_parent(path); nullopt: unknown.
std::optional<std::uint64_t> free_space(const std::filesystem::path& path);

// Uninitialized memory with an alignment, for direct I/O and SIMD. Owns; move-only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `alignment` is a power of two. Large buffers ask for large pages. Fails with kIo when memory is
  // short.
  static Result<AlignedBuffer> allocate(std::size_t size_bytes, std::size_t alignment);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace moepack
