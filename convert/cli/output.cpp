#include "convert/cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "formats/base/output_file.h"
#include "formats/base/write_remedy.h"

namespace moepack::cli {
namespace {

Status stdout_error() {
  return make_error(StatusCode::kIo, {},
                    std::string("cannot write to stdout: ") + std::strerror(errno),
                    write_remedy(errno));
}

}  // namespace

Result<Output> Output::open(const std::filesystem::path& path) {
  Output output;
  if (path == kStdoutName) return output;
  MOE_ASSIGN_OR_RETURN(AtomicFile file, create_output_file(path));
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

Status write_output(const std::filesystem::path& path, std::string_view text) {
  MOE_ASSIGN_OR_RETURN(Output output, Output::open(path));
  MOE_RETURN_IF_ERROR(output.write(std::as_bytes(std::span(text))));
  return output.commit();
}

Status check_named_file(std::string_view option, const std::filesystem::path& path) {
  if (path == kStdoutName) {
    return invalid_argument(std::string(option) + " - cannot go to stdout", "name a file to write");
  }
  return create_output_file(path).status();
}

}  // namespace moepack::cli
