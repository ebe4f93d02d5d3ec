#include "convert/cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace moepack::cli {
namespace {

Status stdout_error() {
  return make_error(StatusCode::kIo, {},
                    std::string("cannot write to stdout: ") + std::strerror(errno));
}

}  // namespace

Result<Output> Output::open(const std::filesystem::path& path) {
  Output output;
  if (path == "-") return output;
  // The file is renamed into place: a device or a pipe would be replaced, not written to.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = path.string()},
                      "is not a regular file", "name a file to write, or - for stdout");
  }
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  output.file_.emplace(std::move(file));
  return output;
}

Status Output::write(std::span<const std::byte> data) {
  if (file_.has_value()) {
    MOE_RETURN_IF_ERROR(file_->write_at(size_, data));
  } else if (std::fwrite(data.data(), 1, data.size(), stdout) != data.size()) {
    return stdout_error();
  }
  size_ += data.size();
  return Status::ok();
}

Status Output::commit() {
  if (file_.has_value()) return file_->commit();
  return std::fflush(stdout) == 0 ? Status::ok() : stdout_error();
}

}  // namespace moepack::cli
