// A layer file open to be read in one of the ways of IoMode, and the way of one read through it:
// piece by piece, whoever carries the pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "runtime/store/direct_file.h"
#include "runtime/store/mapped_file.h"
#include "runtime/store/record_reader.h"
#include "runtime/store/store_options.h"

namespace moepack {

class RecordFile {
 public:
  // `mode` is not kAuto. With kDirect a file that cannot be read directly is read through the page
  // cache (is_direct() says so). Errors of File::open and MappedFile::open.
  static Result<RecordFile> open(const std::filesystem::path& path, IoMode mode);

  const File& file() const { return file_; }
  bool is_direct() const { return direct_.is_open(); }
  const MappedFile& mapping() const { return mapping_; }
  // The descriptor for pieces that pass the page cache by, or for the others.
  int fd(bool direct) const { return direct ? direct_.fd() : file_.fd(); }
  // Whether somebody has written to the file, or cut it, since it was opened. False too where the
  // system cannot tell. A file of the same name that took its place is no concern: the one that was
  // opened stays as it is.
  bool has_changed() const;
  // Whether the file has fewer bytes now; true where the system does not tell.
  bool ends_before(std::uint64_t offset) const;

 private:
  struct Stamp {
    std::int64_t size = 0;
    std::int64_t seconds = 0;
    std::int64_t nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  RecordFile(File file, Stamp stamp) : file_(std::move(file)), stamp_(stamp) {}
  static bool stamp_of(int fd, Stamp& stamp);

  File file_;
  Stamp stamp_;
  DirectFile direct_;
  MappedFile mapping_;
};

// All of them, or the first error. In the place of "" stands another of them, which nobody reads;
// where all are "", there is none.
Result<std::vector<RecordFile>> open_record_files(const std::vector<std::filesystem::path>& paths,
                                                  IoMode mode);

// A read on its way. What moves it on needs no memory but for the sentence of an error, without
// which it gives a shorter one.
struct RecordJob {
  RecordRead read = {};
  RecordCompletion completion = {};
  std::size_t done = 0;    // bytes that are there
  bool is_direct = false;  // how the next piece is read
};

// What is to be read next.
struct JobPiece {
  std::uint64_t offset = 0;
  std::span<std::byte> out = {};  // with is_direct up to the next multiple of kDirectUnit
  bool is_direct = false;
};

// Prepares the job. False: it has ended with an error, because the file is too short.
bool begin_job(const RecordFile& file, RecordJob& job) noexcept;
JobPiece next_piece(const RecordJob& job) noexcept;
// Reads it in the calling thread: bytes, or a negative error number.
long read_piece(const RecordFile& file, const JobPiece& piece) noexcept;
// Takes what became of the piece: bytes (0: the file has ended), or a negative error number. True:
// the read has ended, with all its bytes or with an error. False: there is a next piece, after part
// of one, an interruption (EINTR, EAGAIN, ECANCELED), or where the disk refuses direct reads of
// this unit (EINVAL).
bool take_result(const RecordFile& file, RecordJob& job, long result) noexcept;
// After the read has ended: notes the time and whether the file has changed. True: the bytes want a
// checksum, which hash_job() takes.
bool settle_job(const RecordFile& file, RecordJob& job) noexcept;
void hash_job(RecordJob& job) noexcept;

}  // namespace moepack
