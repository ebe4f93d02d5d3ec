// A reader that does with its reads what a test asks for: faults, lateness, any order. It works in
// the thread that reaps, and no earlier, so that a test with one thread is the same in every run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "runtime/store/record_reader.h"
#include "tests/support/status_matchers.h"

namespace moepack::test {

enum class ReadFault {
  kError,   // as a disk that fails
  kShort,   // as a file that ends too early
  kDamage,  // a byte is wrong, and nobody says so
  kLate,    // a byte changes after the checksum was taken
};

enum class ReapOrder { kAsSubmitted, kLastFirst, kShuffled };

class FaultyReader final : public RecordReader {
 public:
  explicit FaultyReader(const std::vector<std::filesystem::path>& paths,
                        ReapOrder order = ReapOrder::kAsSubmitted, std::uint32_t seed = 1)
      : order_(order), random_(seed) {
    for (const std::filesystem::path& path : paths) {
      auto file = File::open(path);
      EXPECT_OK(file);
      files_.push_back(std::move(file).value());
    }
  }

  std::map<std::pair<std::uint32_t, std::uint64_t>, ReadFault> faults;  // by file and offset
  Status next_submit;                             // given by the next submit, which starts nothing
  std::size_t per_reap = 1;                       // most completions that one waiting reap() gives
  std::vector<std::size_t> submissions;           // reads of each submit
  std::map<std::uint32_t, std::size_t> reads_of;  // by file

  Status submit(std::span<const RecordRead> reads) override {
    if (!next_submit.is_ok()) return std::exchange(next_submit, Status::ok());
    submissions.push_back(reads.size());
    for (const RecordRead& read : reads) ++reads_of[read.file];
    held_.insert(held_.end(), reads.begin(), reads.end());
    return Status::ok();
  }

  // Everything is late: nothing comes unless it is waited for.
  std::size_t reap(std::span<RecordCompletion> out, bool wait) noexcept override {
    if (!wait) return 0;
    EXPECT_FALSE(held_.empty()) << "a wait that would never end";
    std::size_t given = 0;
    while (given < std::min(per_reap, out.size()) && !held_.empty()) {
      const auto at = held_.begin() + static_cast<std::ptrdiff_t>(next());
      out[given++] = run(*at);
      held_.erase(at);
    }
    return given;
  }

  std::size_t under_way() const { return held_.size(); }

 private:
  RecordCompletion run(const RecordRead& read) {
    RecordCompletion completion{.tag = read.tag};
    completion.status = files_[read.file].read_at(read.offset, read.out);
    completion.bytes = read.out.size();
    completion.finished = Clock::now();
    const auto fault = faults.find({read.file, read.offset});
    const bool is_faulty = fault != faults.end();
    if (is_faulty) put(fault->second, read, completion);
    completion.has_checksum = read.wants_checksum;
    if (read.wants_checksum) completion.checksum = checksum(read.out);
    if (is_faulty && fault->second == ReadFault::kLate) read.out[0] ^= std::byte{1};
    return completion;
  }

  void put(ReadFault fault, const RecordRead& read, RecordCompletion& completion) const {
    switch (fault) {
      case ReadFault::kError:
        completion.status = make_error(
            StatusCode::kIo, Where{.file = files_[read.file].path(), .offset = read.offset}, "EIO");
        break;
      case ReadFault::kShort:
        completion.bytes = read.out.size() / 2;
        break;
      case ReadFault::kDamage:
        read.out[read.out.size() / 3] ^= std::byte{4};
        break;
      case ReadFault::kLate:
        break;
    }
  }

  std::size_t next() {
    switch (order_) {
      case ReapOrder::kAsSubmitted:
        return 0;
      case ReapOrder::kLastFirst:
        return held_.size() - 1;
      case ReapOrder::kShuffled:
        return random_() % held_.size();
    }
    return 0;
  }

  ReapOrder order_;
  std::mt19937 random_;
  std::vector<File> files_;
  std::vector<RecordRead> held_;
};

}  // namespace moepack::test
