#include "convert/verify/range_compare.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace moepack {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 19;

}  // namespace

Result<std::optional<ByteDifference>> RangeComparer::compare(const FileRange& here,
                                                             const FileRange& there) {
  here_.resize(std::min(kBlockBytes, here.bytes));
  there_.resize(here_.size());
  for (std::uint64_t at = 0; at < here.bytes; at += kBlockBytes) {
    const std::size_t size = std::min(kBlockBytes, here.bytes - at);
    const auto a = std::span(here_).first(size);
    const auto b = std::span(there_).first(size);
    MOE_RETURN_IF_ERROR(here.read(at, a));
    MOE_RETURN_IF_ERROR(there.read(at, b));
    if (std::memcmp(a.data(), b.data(), size) == 0) continue;
    const auto pair = std::mismatch(a.begin(), a.end(), b.begin());
    return std::optional(ByteDifference{
        .offset = here.file_offset(at + static_cast<std::uint64_t>(pair.first - a.begin())),
        .expected = *pair.second,
        .found = *pair.first});
  }
  return std::optional<ByteDifference>();
}

}  // namespace moepack
