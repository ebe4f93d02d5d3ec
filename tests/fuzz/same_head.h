// Of heads of files with saved states, which are written again as they were read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/prompt_origin.h"
#include "tests/fuzz/require.h"

namespace moepack::test {

// Requires that `again`, the head that was written from what the head of `bytes` says, has its
// bytes, but for a name of kernels that has become that of others with the same bits
// (parse_kernels), and for the checksum at the end then.
inline void require_same_head(std::span<const std::byte> bytes, std::span<const std::byte> again) {
  constexpr std::size_t kKernelsAt = kOriginAt + sizeof(std::uint32_t);
  const auto kernels = [](std::span<const std::byte> head) {
    return head.subspan(kKernelsAt, kCutTokensAt - kKernelsAt);
  };
  const auto same = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  const std::span<const std::byte> head = bytes.first(again.size());
  if (same(kernels(head), kernels(again))) return require(same(head, again));
  require(parse_kernels(kernels(head)) == parse_kernels(kernels(again)));
  require(same(head.first(kKernelsAt), again.first(kKernelsAt)));
  const std::size_t behind = again.size() - sizeof(std::uint64_t) - kCutTokensAt;
  require(same(head.subspan(kCutTokensAt, behind), again.subspan(kCutTokensAt, behind)));
}

}  // namespace moepack::test
