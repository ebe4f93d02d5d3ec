#include "runtime/store/record_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "formats/base/bytes.h"
#include "formats/base/large_pages.h"
#include "runtime/store/out_of_memory.h"
#include "runtime/store/record_cache.h"

namespace moepack {
namespace {

// Where large pages at the ends of areas are a small part.
constexpr std::uint64_t kLeastBudget = std::uint64_t{128} << 20;
constexpr std::uint64_t kAreaBytes = std::uint64_t{1} << 30;

bool takes_areas(std::uint64_t budget_bytes) { return budget_bytes >= kLeastBudget; }

std::uint64_t area_bytes(std::uint64_t budget_bytes) {
  return align_up(std::min(budget_bytes, kAreaBytes), kLargePage);
}

// Addresses at the beginning of a large page, without memory until they are written; nullptr where
// the system has none.
std::byte* reserve(std::uint64_t bytes) {
  constexpr int kNobody = -1;
  void* all = ::mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, kNobody, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(all);
  const std::uint64_t before = align_up(reinterpret_cast<std::uintptr_t>(first), kLargePage) -
                               reinterpret_cast<std::uintptr_t>(first);
  if (before > 0) (void)::munmap(first, before);
  if (before < kLargePage) (void)::munmap(first + before + bytes, kLargePage - before);
  (void)::madvise(first + before, bytes, MADV_HUGEPAGE);  // a wish
  return first + before;
}

}  // namespace

std::uint64_t record_memory_overhead(std::uint64_t budget_bytes) {
  if (!takes_areas(budget_bytes)) return 0;
  return (div_up(budget_bytes, area_bytes(budget_bytes)) + 1) * kLargePage;
}

RecordMemory::RecordMemory(std::uint64_t budget_bytes)
    : has_areas_(takes_areas(budget_bytes)), area_bytes_(area_bytes(budget_bytes)) {}

RecordMemory::~RecordMemory() {
  for (const Area& area : areas_) (void)::munmap(area.begin, area.size);
}

Result<std::span<std::byte>> RecordMemory::take(std::uint64_t bytes) {
  if (!has_areas_) return take_alone(bytes);
  if (auto same = empty_.find(bytes); same != empty_.end() && !same->second.empty()) {
    std::byte* memory = same->second.back();
    same->second.pop_back();
    return std::span(memory, bytes);
  }
  if (areas_.empty() || areas_.back().size - areas_.back().used < bytes) {
    MOE_RETURN_IF_ERROR(begin_area(bytes));
  }
  Area& area = areas_.back();
  const std::span<std::byte> memory(area.begin + area.used, bytes);
  area.used += bytes;
  return memory;
}

Result<std::span<std::byte>> RecordMemory::take_alone(std::uint64_t bytes) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, kRecordAlignment, bytes) != 0) {
    return out_of_memory("a record", bytes);
  }
  return std::span(static_cast<std::byte*>(memory), bytes);
}

Status RecordMemory::begin_area(std::uint64_t bytes) {
  areas_.reserve(areas_.size() + 1);
  const std::uint64_t least = align_up(bytes, kLargePage);
  std::uint64_t size = std::max(area_bytes_, least);
  std::byte* begin = reserve(size);
  // Where addresses are short, a smaller area does as well.
  while (begin == nullptr && size > least) {
    size = std::max(least, align_up(size / 2, kLargePage));
    begin = reserve(size);
  }
  if (begin == nullptr) return out_of_memory("an area of records", size);
  areas_.push_back({begin, size, 0});
  return Status::ok();
}

void RecordMemory::give_back(std::span<std::byte> memory) noexcept {
  if (!has_areas_) return std::free(memory.data());
  (void)::madvise(memory.data(), memory.size(), MADV_DONTNEED);
  try {
    empty_[memory.size()].push_back(memory.data());
  } catch (const std::bad_alloc&) {
    // Addresses without memory are lost, which costs nothing.
  }
}

}  // namespace moepack
