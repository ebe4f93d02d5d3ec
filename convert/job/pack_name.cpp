#include "convert/job/pack_name.h"

#include <algorithm>

#include "formats/pack/pack_manifest.h"

namespace moepack {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

}  // namespace

std::optional<std::string> new_pack_directory(const std::string& name) {
  const std::string prefix = std::string(kDefaultPackName) + "_";
  if (name == kDefaultPackName) return name;
  const std::string directory = name.starts_with(prefix) ? name : prefix + name;
  const bool is_good = directory.size() > prefix.size() && is_plain_file_name(directory) &&
                       std::all_of(directory.begin(), directory.end(), is_name_character);
  return is_good ? std::optional(directory) : std::nullopt;
}

}  // namespace moepack
