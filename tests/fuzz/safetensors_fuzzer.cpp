// The input is a whole safetensors file, and once more the text of a header.
#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "formats/safetensors.h"

namespace {

// An anonymous file with a path, so that the real reader opens it.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void require(bool condition) {
  if (!condition) std::abort();
}

void check_message(const moepack::Status& status) {
  require(!status.is_ok() && !status.message().empty());
  require(status.message().find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile memory(data, size);
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
