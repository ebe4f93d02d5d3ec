// Hessians of the flash-moe tools: a first byte of '{' makes the input a counts.json, anything else
// an .npy file.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/calibration/hessian_directory.h"
#include "formats/calibration/npy.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

namespace {

using moepack::test::require;

void read_counts(std::string_view text) {
  const auto counts = moepack::parse_hessian_counts(text, 100, "fuzz");
  if (!counts.is_ok()) return;
  for (const auto& [expert, samples] : counts.value()) require(expert < 100 && samples > 0);
}

void read_array(std::string_view bytes) {
  const moepack::test::MemoryFile memory(bytes);
  const auto file = moepack::NpyFile::open(memory.path());
  if (file.is_ok()) {
    const moepack::NpyArray& array = file.value().array();
    require(array.elements <= bytes.size());
    std::vector<float> values(array.elements);
    require(file.value().read(values).is_ok());
    if (array.shape.size() == 2 && array.shape[0] == array.shape[1]) {
      (void)moepack::check_hessian(values, array.shape[0], "fuzz");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('{')) {
    read_counts(text);
  } else {
    read_array(text);
  }
  return 0;
}
