// Memory of expert records. A large cache takes it from few large areas, which the system is asked
// to back with large pages: experts are read from end to end, and a fresh large page is cleared in
// half the time that its small ones take. A small cache takes it record by record.
//
// Thread rule: no lock of its own; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// About what the memory of a cache of `budget_bytes` holds beyond the records that it was asked
// for: a large page at the end of each area that is begun. Records that were given back may leave
// parts of large pages until the system takes them.
std::uint64_t record_memory_overhead(std::uint64_t budget_bytes);

class RecordMemory {
 public:
  // For records of `budget_bytes` in all.
  explicit RecordMemory(std::uint64_t budget_bytes);
  ~RecordMemory();
  RecordMemory(const RecordMemory&) = delete;
  RecordMemory& operator=(const RecordMemory&) = delete;

  // `bytes`, a multiple of kDirectUnit and aligned to it, with any content. kIo when the system has
  // no memory, std::bad_alloc when there is none for the lists.
  Result<std::span<std::byte>> take(std::uint64_t bytes);
  // Gives what take() returned back to the system. Where it was part of an area, its addresses wait
  // for the next record of this size.
  void give_back(std::span<std::byte> memory) noexcept;

 private:
  struct Area {
    std::byte* begin = nullptr;
    std::uint64_t size = 0;
    std::uint64_t used = 0;
  };

  Result<std::span<std::byte>> take_alone(std::uint64_t bytes);
  Status begin_area(std::uint64_t bytes);

  bool has_areas_;
  std::uint64_t area_bytes_;
  std::vector<Area> areas_;
  std::map<std::uint64_t, std::vector<std::byte*>> empty_;  // ranges without memory, by size
};

}  // namespace moepack
