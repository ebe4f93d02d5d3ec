// Hessians of the flash-moe tools: a first byte of '{' makes the input a counts.json, anything else
// an .npy file.
#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "formats/hessian_directory.h"
#include "formats/npy.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void read_counts(std::string_view text) {
  const auto counts = moepack::parse_hessian_counts(text, 100, "fuzz");
  if (!counts.is_ok()) return;
  for (const auto& [expert, samples] : counts.value()) require(expert < 100 && samples > 0);
}

void read_array(std::span<const std::byte> bytes) {
  const int fd = ::memfd_create("npy", 0);
  require(fd >= 0 && ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const auto file = moepack::NpyFile::open("/proc/self/fd/" + std::to_string(fd));
  if (file.is_ok()) {
    const moepack::NpyArray& array = file.value().array();
    require(array.elements <= bytes.size());
    std::vector<float> values(array.elements);
    require(file.value().read(values).is_ok());
    if (array.shape.size() == 2 && array.shape[0] == array.shape[1]) {
      (void)moepack::check_hessian(values, array.shape[0], "fuzz");
    }
  }
  ::close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('{')) {
    read_counts(text);
  } else {
    read_array(std::as_bytes(std::span(data, size)));
  }
  return 0;
}
