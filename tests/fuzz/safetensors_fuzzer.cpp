// The input is a whole safetensors file, and once more the text of a header.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/checkpoint/safetensors.h"
#include "tests/fuzz/require.h"
#include "tests/support/memory_file.h"

using moepack::test::check_message;
using moepack::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const moepack::test::MemoryFile memory({reinterpret_cast<const char*>(data), size});
  const auto file = moepack::SafetensorsFile::open(memory.path());
  if (file.is_ok()) {
    std::uint64_t total = 0;
    for (const moepack::TensorInfo& tensor : file.value().tensors()) {
      require(tensor.offset <= size && tensor.size <= size - tensor.offset);
      require(file.value().find(tensor.name) == &tensor);
      total += tensor.size;
    }
    require(total <= size);
  } else {
    check_message(file.status());
  }

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::uint64_t data_size : {0U, 16U}) {
    const auto tensors = moepack::parse_safetensors_header(text, 8 + size + data_size, "fuzz");
    if (!tensors.is_ok()) check_message(tensors.status());
  }
  return 0;
}
