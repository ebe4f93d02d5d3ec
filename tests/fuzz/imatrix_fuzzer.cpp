// The input is an importance matrix in either form. Every entry is read with dimensions that fit
// and with some that do not.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/calibration/imatrix.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

using moepack::test::check_message;
using moepack::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moepack::test::MemoryFile memory({reinterpret_cast<const char*>(data), size});
  const auto imatrix = moepack::Imatrix::open(memory.path());
  check_message(imatrix.status());
  if (!imatrix.is_ok()) return 0;
  for (const std::string& name : imatrix.value().weights()) {
    const std::uint64_t values = imatrix.value().values(name);
    require(values <= size / sizeof(float));
    for (std::uint64_t matrices : {1U, 2U, 3U}) {
      const auto found = imatrix.value().read(name, matrices - 1, matrices, values / matrices);
      check_message(found.status());
      if (!found.is_ok()) continue;
      for (float value : found.value().mean_square) require(std::isfinite(value) && value >= 0);
    }
    check_message(imatrix.value().read(name, 0, 1, values + 1).status());
  }
  return 0;
}
