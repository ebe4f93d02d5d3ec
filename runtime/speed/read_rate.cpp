#include "runtime/speed/read_rate.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "runtime/cpu/read_memory.h"
#include "runtime/model/available_memory.h"
#include "runtime/model/thread_pool.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t kLeastBuffer = 256 * kMebibyte;
constexpr std::uint64_t kMostBuffer = 2048 * kMebibyte;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // that a thread takes at once
constexpr std::size_t kAlignment = 4096;
constexpr int kLeastPasses = 5;
constexpr double kLeastSeconds = 0.25;

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

Result<double> measure_read_rate(std::size_t threads) {
  MOE_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::allocate(buffer_bytes(), kAlignment));
  ThreadPool pool(threads);
  const std::size_t pieces = buffer.size() / kPieceBytes;
  // Written by the threads that will read it, so that its pages are there and near them.
  pool.parallel_for(pieces, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    std::memset(buffer.data() + begin * kPieceBytes, 1, (end - begin) * kPieceBytes);
  });
  const CpuLevel level = detect_cpu_level();
  std::atomic<std::uint64_t> words{0};  // uses what is read
  double best = 0;
  double spent = 0;
  for (int pass = 0; pass < kLeastPasses || spent < kLeastSeconds; ++pass) {
    const Clock::time_point start = Clock::now();
    pool.parallel_for(pieces, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
      const std::byte* from = buffer.data() + begin * kPieceBytes;
      words ^= xor_words(level, std::span(from, (end - begin) * kPieceBytes));
    });
    const double seconds = seconds_since(start);
    spent += seconds;
    if (seconds > 0) best = std::max(best, static_cast<double>(buffer.size()) / seconds);
  }
  return best;
}

}  // namespace moepack
