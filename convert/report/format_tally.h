// How many tensors and bytes there are of each format.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moepack {

// Tensors of one dtype ("BF16") or weight format ("q4 g64").
struct FormatTally {
  std::string format;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

class FormatTallies {
 public:
  void add(const std::string& format, std::uint64_t bytes) {
    FormatTally& entry = entries_[format];
    entry.format = format;
    ++entry.tensors;
    entry.bytes += bytes;
  }
  // The entries, those with most bytes first.
  std::vector<FormatTally> sorted() const {
    std::vector<FormatTally> list;
    for (const auto& [format, entry] : entries_) list.push_back(entry);
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return list;
  }

 private:
  std::map<std::string, FormatTally> entries_;
};

}  // namespace moepack
