#include "formats/base/paths.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <system_error>

#include "formats/base/write_remedy.h"

namespace moepack {

namespace fs = std::filesystem;

namespace {

// The absolute path; links are resolved only where its end, "..", says nothing by itself.
fs::path path_that_ends_in_a_name(const fs::path& path) {
  std::error_code error;
  const fs::path whole = without_trailing_slash(fs::absolute(path, error));
  if (whole.filename() != "..") return whole;
  const fs::path resolved = fs::canonical(whole, error);
  return error ? whole.lexically_normal() : resolved;
}

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Status check_link(const fs::path& path, std::string_view remedy) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error))) return Status::ok();
  const fs::file_status status = fs::status(path, error);
  const bool loops = error == std::errc::too_many_symbolic_link_levels;
  if (status.type() != fs::file_type::not_found && !loops) return Status::ok();
  const fs::path target = fs::read_symlink(path, error);
  const std::string name = path.string();
  const Where where{.file = name};
  const std::string to = printable(target.string(), 4096);
  if (loops) return corrupt(where, "is a link to " + to + ", which leads back to it", remedy);
  return not_found(where, "is a link to " + to + ", which is missing", remedy);
}

fs::path without_trailing_slash(const fs::path& path) {
  fs::path clean;
  for (const fs::path& part : path) {
    if (!part.empty() && part != ".") clean /= part;
  }
  return clean.empty() && !path.empty() ? fs::path(".") : clean;
}

std::string directory_name(const fs::path& path) {
  return path_that_ends_in_a_name(path).filename().string();
}

fs::path directory_above(const fs::path& path) {
  return path_that_ends_in_a_name(path).parent_path();
}

Result<std::vector<fs::path>> list_directory(const fs::path& path) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(at->path());
  }
  if (error) {
    const std::string name = path.string();
    return make_error(StatusCode::kIo, Where{.file = name},
                      "cannot list the directory: " + error.message(), write_remedy(error.value()));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

fs::path user_cache_directory() {
  const auto from_environment = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? fs::path() : fs::path(value);
  };
  const fs::path caches = from_environment("XDG_CACHE_HOME");
  if (!caches.empty()) return caches / "moepack";
  const fs::path home = from_environment("HOME");
  return home.empty() ? fs::path() : home / ".cache" / "moepack";
}

Status remove_path(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (!error) return Status::ok();
  const std::string name = path.string();
  return make_error(StatusCode::kIo, Where{.file = name}, "cannot remove it: " + error.message());
}

}  // namespace moepack
