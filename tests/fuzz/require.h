// What fuzz targets demand; the run ends where it does not hold.
#pragma once

#include <cstdlib>
#include <string>

#include "formats/base/status.h"

namespace moepack::test {

inline void require(bool condition) {
  if (!condition) std::abort();
}

// An error has a message, of one line.
inline void check_message(const Status& status) {
  if (status.is_ok()) return;
  require(!status.message().empty() && status.message().find('\n') == std::string::npos);
}

}  // namespace moepack::test
