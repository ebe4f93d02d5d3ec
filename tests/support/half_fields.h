// Where ggml's blocks keep their binary16 scales and minima, for tests that fill blocks with random
// bytes and the scales with numbers.
#pragma once

#include <cstddef>
#include <vector>

#include "formats/weights/qformat.h"

namespace moepack::test {

// Offsets of these fields in a block, in bytes. MXFP4, NVFP4 and IQ1_M have no such field, and what
// is returned for them means nothing.
inline std::vector<std::size_t> half_fields(QFormatId id) {
  switch (id) {
    case QFormatId::kQ41:
    case QFormatId::kQ51:
    case QFormatId::kQ4K:
    case QFormatId::kQ5K:
      return {0, 2};
    case QFormatId::kQ2K:
      return {80, 82};
    case QFormatId::kQ3K:
      return {108};
    case QFormatId::kQ6K:
      return {208};
    case QFormatId::kTq10:
      return {52};
    case QFormatId::kTq20:
      return {64};
    default:
      return {0};
  }
}

}  // namespace moepack::test
