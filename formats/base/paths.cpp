#include "formats/base/paths.h"

#include <string>
#include <system_error>

namespace moepack {

namespace fs = std::filesystem;

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
  return not_found(where, "is a link to " + to + ", and nothing is there", remedy);
}

fs::path without_trailing_slash(const fs::path& path) {
  const fs::path clean = path.lexically_normal();
  return clean.filename().empty() ? clean.parent_path() : clean;
}

}  // namespace moepack
