// UringReader of a program that was built without liburing.
#include "runtime/store/uring_reader.h"

namespace moepack {

struct UringReader::Impl {};

Status UringReader::check_available() {
  return unsupported(Where{}, "this moepack was built without io_uring",
                     "install liburing-dev and build again, or give --io-engine threads");
}

UringReader::UringReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UringReader::~UringReader() = default;

Result<std::unique_ptr<UringReader>> UringReader::open(const std::vector<std::filesystem::path>&,
                                                       const UringOptions&) {
  return check_available();
}

Status UringReader::submit(std::span<const RecordRead>) { return check_available(); }

std::size_t UringReader::reap(std::span<RecordCompletion>, bool) noexcept { return 0; }

}  // namespace moepack
