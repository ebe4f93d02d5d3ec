// How fast threads can read memory: the limit of everything that reads its weights once.
#pragma once

#include <cstddef>

#include "formats/base/status.h"

namespace moepack {

// Bytes a second, the best of several passes of `threads` (>= 1) threads over a buffer of four
// times the last-level cache and at least 256 MiB (where memory is short, a quarter of what there
// is). Takes about a third of a second. kIo when there is no memory for the buffer. Other work on
// the machine lowers the result.
Result<double> measure_read_rate(std::size_t threads);

}  // namespace moepack
