// Suggestions for a name that does not exist: those with the longest common ends.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

class NearestNames {
 public:
  // `wanted` outlives it.
  explicit NearestNames(std::string_view wanted) : wanted_(wanted) {}

  void add(std::string_view name);
  // "a, b, c"; empty without names.
  std::string text() const;

 private:
  static constexpr std::size_t kShown = 3;
  std::string_view wanted_;
  std::vector<std::pair<std::size_t, std::string>> best_;
};

// kNotFound with the nearest names and `hint` (may be empty).
Status no_such_tensor(const std::string& place, const std::string& wanted,
                      const NearestNames& nearest, const std::string& hint);

}  // namespace moepack
