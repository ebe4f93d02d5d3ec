// What a check found to be other than it should be.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moepack {

struct Difference {
  std::string file;
  std::optional<std::uint32_t> layer;
  std::optional<std::uint32_t> expert;
  std::string tensor;                   // "" when a whole record or file is meant
  std::optional<std::uint64_t> offset;  // in the file
  std::string what;
  std::string expected;
  std::string found;
};

// One line: "FILE: layer 3, expert 7, tensor gate_proj.weight, offset 4096: WHAT: expected X, found
// Y".
std::string difference_text(const Difference& difference);

// Counts differences and keeps the first few. Thread-safe; which ones are kept depends on the
// positions given, not on the order of the calls.
class DifferenceLog {
 public:
  static constexpr std::size_t kKept = 20;

  // From here on positions count anew, behind all that were given before.
  void next_part();
  void add(std::uint64_t position, Difference difference);

  std::uint64_t count() const;
  std::vector<Difference> kept() const;  // in order

 private:
  struct Entry {
    std::pair<std::uint64_t, std::uint64_t> position;  // part, position in it
    Difference difference;
  };
  mutable std::mutex mutex_;
  std::uint64_t part_ = 0;
  std::uint64_t count_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace moepack
