#include "convert/cli/model_path.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "formats/base/file.h"
#include "formats/base/paths.h"
#include "formats/gguf/gguf.h"

namespace moepack::cli {
namespace {

namespace fs = std::filesystem;

// ORG/NAME, as model hubs name repositories.
bool looks_like_repository(std::string_view path) {
  const auto fits = [](unsigned char c) {
    return c == '/' || c == '-' || c == '_' || c == '.' || (c >= '0' && c <= '9') ||
           (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const std::size_t slash = path.find('/');
  return slash != std::string_view::npos && slash != 0 && slash + 1 < path.size() &&
         path.find('/', slash + 1) == std::string_view::npos && path.front() != '.' &&
         std::all_of(path.begin(), path.end(), fits);
}

Status no_such_model(const std::string& path) {
  const Where where{.file = path};
  if (!looks_like_repository(path)) {
    return not_found(where, "there is no such directory",
                     "name a model directory, as moepack convert writes it");
  }
  const std::string name = path.substr(path.find('/') + 1);
  return not_found(where, "there is no such directory",
                   "a repository of the Hugging Face hub is downloaded and converted first: "
                   "huggingface-cli download " +
                       path + " --local-dir " + name + " && moepack convert " + name + " -o " +
                       name + "-moepack");
}

}  // namespace

Status check_model_path(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  MOE_RETURN_IF_ERROR(check_link(without_trailing_slash(path), "mend the link, or name a model"));
  if (status.type() == fs::file_type::not_found) return no_such_model(path);
  if (!fs::is_regular_file(status)) return Status::ok();
  const Where where{.file = path};
  const auto file = File::open(path);
  if (!file.is_ok() || !has_gguf_magic(file.value())) {
    return make_error(StatusCode::kInvalidArgument, where, "is a file and no model directory",
                      "name a directory, as moepack convert writes it");
  }
  const std::string shown = printable(path, 4096);
  const std::string output = printable(fs::path(path).stem().string(), 4096);
  return make_error(StatusCode::kInvalidArgument, where, "is a GGUF file and no model directory",
                    "convert it first: moepack convert " + shown + " -o " + output);
}

}  // namespace moepack::cli
