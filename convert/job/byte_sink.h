// Where results go that are too large for memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "formats/base/status.h"

namespace moepack {

// Takes bytes in order, in pieces of about a mebibyte at most; called from one thread. An error
// ends the job and is returned as it is.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

}  // namespace moepack
