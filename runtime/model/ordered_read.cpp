#include "runtime/model/ordered_read.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "formats/base/checksum.h"
#include "formats/base/large_pages.h"

namespace moepack {
namespace {

// Threads that fill one large page at once wait for each other while the system clears it.
constexpr std::size_t kReadBlock = kLargePage;
constexpr std::size_t kPassedBlock = kPassedBytes / kMostReadThreads;

std::vector<ReadPiece> blocks_of(std::span<const ReadPiece> pieces) {
  std::vector<ReadPiece> blocks;
  for (const ReadPiece& piece : pieces) {
    const std::uint64_t size = piece.out == nullptr ? kPassedBlock : kReadBlock;
    for (std::uint64_t at = 0; at < piece.size; at += size) {
      blocks.push_back({.file = piece.file,
                        .offset = piece.offset + at,
                        .size = std::min(size, piece.size - at),
                        .out = piece.out == nullptr ? nullptr : piece.out + at});
    }
  }
  return blocks;
}

class OrderedRead {
 public:
  OrderedRead(std::vector<ReadPiece> blocks, bool sums) : blocks_(std::move(blocks)), sums_(sums) {}

  // The work of one thread. `passed`: kPassedBlock bytes of its own where a block has no place.
  void work(std::span<std::byte> passed) {
    while (true) {
      const std::size_t index = next_.fetch_add(1);
      if (index >= blocks_.size()) return;
      const ReadPiece& block = blocks_[index];
      const std::span<std::byte> bytes =
          block.out == nullptr ? passed.first(block.size) : std::span(block.out, block.size);
      Status status = block.file->read_at(block.offset, bytes);
      if (!take_turn(index, std::move(status), bytes)) return;
    }
  }

  Result<std::uint64_t> result() const {
    if (!status_.is_ok()) return status_;
    return sums_ ? sum_.finish() : 0;
  }

 private:
  // Waits for the blocks before this one; false when the read has come to its end with an error.
  bool take_turn(std::size_t index, Status status, std::span<const std::byte> bytes) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return turn_index_ == index || !status_.is_ok(); });
    if (!status_.is_ok()) return false;
    status_ = std::move(status);
    const bool goes_on = status_.is_ok();
    if (goes_on && sums_) {
      lock.unlock();  // nobody else has this turn
      sum_.add(bytes);
      lock.lock();
    }
    ++turn_index_;
    lock.unlock();
    turn_.notify_all();
    return goes_on;
  }

  const std::vector<ReadPiece> blocks_;
  const bool sums_;
  std::atomic<std::size_t> next_{0};
  ChecksumStream sum_;  // of the thread that has the turn
  std::mutex mutex_;    // guards what follows
  std::condition_variable turn_;
  std::size_t turn_index_ = 0;
  Status status_;  // the first error
};

}  // namespace

Result<std::uint64_t> read_in_order(std::span<const ReadPiece> pieces,
                                    const OrderedReadOptions& options) {
  const bool passes = std::any_of(pieces.begin(), pieces.end(),
                                  [](const ReadPiece& piece) { return piece.out == nullptr; });
  std::vector<ReadPiece> blocks = blocks_of(pieces);
  const std::size_t most = std::clamp<std::size_t>(options.threads, 1, kMostReadThreads);
  const std::size_t threads = std::min(most, std::max<std::size_t>(1, blocks.size()));
  std::vector<std::byte> passed(passes ? threads * kPassedBlock : 0);
  OrderedRead read(std::move(blocks), options.wants_checksum);
  const auto work = [&](std::size_t thread) {
    read.work(passes ? std::span(passed).subspan(thread * kPassedBlock, kPassedBlock)
                     : std::span<std::byte>());
  };
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  try {
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work, i);
  } catch (const std::exception&) {  // no thread, or no memory for one: fewer do the same work
  }
  work(0);
  for (std::thread& thread : others) thread.join();
  return read.result();
}

}  // namespace moepack
