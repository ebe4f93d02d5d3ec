#include "runtime/speed/read_rate.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "formats/base/elapsed.h"
#include "runtime/cpu/read_memory.h"
#include "runtime/model/available_memory.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t kLeastBuffer = 256 * kMebibyte;
constexpr std::uint64_t kMostBuffer = 2048 * kMebibyte;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // that a thread takes at once
constexpr std::size_t kAlignment = 4096;
constexpr int kLeastPasses = 5;
constexpr double kSeconds = 0.25;  // of a single measurement

// The largest cache of the first processor; 0 where the system does not tell.
std::uint64_t last_level_cache_bytes() {
  std::uint64_t largest = 0;
  for (int index = 0; index < 5; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    std::uint64_t size = 0;
    char unit = ' ';
    if (!(file >> size)) continue;
    file >> unit;
    if (unit == 'K') size <<= 10;
    if (unit == 'M') size <<= 20;
    largest = std::max(largest, std::min(size, kMostBuffer));
  }
  return largest;
}

std::size_t buffer_bytes() {
  std::uint64_t bytes = std::clamp(4 * last_level_cache_bytes(), kLeastBuffer, kMostBuffer);
  if (const auto available = available_memory_bytes(); available.has_value()) {
    bytes = std::min(bytes, std::max<std::uint64_t>(*available / 4, kPieceBytes));
  }
  return static_cast<std::size_t>(bytes / kPieceBytes * kPieceBytes);
}

}  // namespace

ReadRateMeter::ReadRateMeter(std::size_t threads, AlignedBuffer buffer)
    : pool_(threads), buffer_(std::move(buffer)) {
  // Written by the threads that will read it, so that its pages are there and near them.
  pool_.parallel_for(
      buffer_.size() / kPieceBytes, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
        std::memset(buffer_.data() + begin * kPieceBytes, 1, (end - begin) * kPieceBytes);
      });
}

Result<std::unique_ptr<ReadRateMeter>> ReadRateMeter::create(std::size_t threads) {
  MOE_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::allocate(buffer_bytes(), kAlignment));
  return std::unique_ptr<ReadRateMeter>(new ReadRateMeter(threads, std::move(buffer)));
}

double ReadRateMeter::measure(double seconds) {
  const CpuLevel level = detect_cpu_level();
  std::atomic<std::uint64_t> words{0};  // uses what is read
  double best = 0;
  double spent = 0;
  for (int pass = 0; pass < kLeastPasses || spent < seconds; ++pass) {
    const Clock::time_point start = Clock::now();
    pool_.parallel_for(buffer_.size() / kPieceBytes, 1,
                       [&](std::size_t begin, std::size_t end, std::size_t) {
                         const std::byte* from = buffer_.data() + begin * kPieceBytes;
                         words ^= xor_words(level, std::span(from, (end - begin) * kPieceBytes));
                       });
    const double passed = seconds_since(start);
    spent += passed;
    if (passed > 0) best = std::max(best, static_cast<double>(buffer_.size()) / passed);
  }
  return best;
}

Result<double> measure_read_rate(std::size_t threads) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadRateMeter> meter, ReadRateMeter::create(threads));
  return meter->measure(kSeconds);
}

}  // namespace moepack
