// Questions about paths that several readers ask, each answered in one place.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// Whether something stands at `path`, links followed. False also where the system does not tell.
bool is_there(const std::filesystem::path& path);

// Ok unless `path` is a symbolic link that leads nowhere. kNotFound: its target, or a link on the
// way, is missing; the message names the link and where it leads. kCorrupt: its links form a loop.
Status check_link(const std::filesystem::path& path, std::string_view remedy);

// `path` without slashes at its end and without "." inside. Every ".." stays: behind a link it is
// the directory above the link's target, which only the file system knows.
std::filesystem::path without_trailing_slash(const std::filesystem::path& path);

// The name of the directory itself, also of "dir/", "." and "dir/..".
std::string directory_name(const std::filesystem::path& path);
// The directory that holds the one at `path`: of a link, the one that the link lies in.
std::filesystem::path directory_above(const std::filesystem::path& path);

// What stands in a directory, sorted by name. kIo: it cannot be listed, or not to its end.
Result<std::vector<std::filesystem::path>> list_directory(const std::filesystem::path& path);

// Where a program keeps what it can do without: moepack in XDG_CACHE_HOME or HOME/.cache; empty
// when neither is set.
std::filesystem::path user_cache_directory();

// Removes the file or empty directory at `path` if it is there.
Status remove_path(const std::filesystem::path& path);

}  // namespace moepack
