#include "formats/pack/resident_files.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/limits.h"

namespace moepack {
namespace {

constexpr std::size_t kMaxFiles = 1U << 16;

}  // namespace

std::vector<ResidentFile> resident_files(const ResidentManifest& manifest) {
  if (!manifest.files.empty()) return manifest.files;
  return {{.name = kResidentDataName, .begin = 0, .size = manifest.data_size}};
}

std::string resident_files_text(std::span<const ResidentFile> files) {
  std::string text = "[";
  for (const ResidentFile& file : files) {
    if (text.size() > 1) text += ", ";
    text += "{\"file\": " + json_quote(file.name) + ", \"begin\": " + std::to_string(file.begin) +
            ", \"size\": " + std::to_string(file.size) + "}";
  }
  return text + "]";
}

Result<std::vector<ResidentFile>> parse_resident_files(const JsonFields& root,
                                                       std::uint64_t data_size) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, root.array("files"));
  if (list->empty() || list->size() > kMaxFiles) return root.error("files", "must name a file");
  std::vector<ResidentFile> files;
  std::set<std::string> names;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string path = root.path_of("files") + "[" + std::to_string(i) + "]";
    MOE_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::of((*list)[i], root.file(), path));
    MOE_RETURN_IF_ERROR(fields.allow_only({"file", "begin", "size"}));
    ResidentFile file;
    MOE_ASSIGN_OR_RETURN(file.name, fields.string("file"));
    if (!is_plain_file_name(file.name) || !names.insert(file.name).second) {
      return fields.error("file", "\"" + printable(file.name) +
                                      "\" is not a plain file name that stands here once");
    }
    MOE_ASSIGN_OR_RETURN(
        file.begin, fields.number("begin", end, i == 0 ? 0 : align_up(end, kResidentAlignment)));
    MOE_ASSIGN_OR_RETURN(file.size, fields.number("size", 1, kMaxDataBytes - file.begin));
    end = file.begin + file.size;
    files.push_back(std::move(file));
  }
  if (end == data_size) return files;
  return root.error("data_size", "is " + std::to_string(data_size) +
                                     ", but the files end at byte " + std::to_string(end));
}

Status check_resident_extents(const JsonFields& tensors, std::vector<ResidentExtent>& extents,
                              std::span<const ResidentFile> files) {
  std::sort(extents.begin(), extents.end(), [](const ResidentExtent& a, const ResidentExtent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.name < b.name;
  });
  std::uint64_t end = 0;
  auto file = files.begin();
  for (const ResidentExtent& extent : extents) {
    const auto error = [&](const std::string& what) {
      return tensors.error(extent.name, "offset " + std::to_string(extent.begin) + what);
    };
    if (extent.begin < end) {
      return error(" overlaps the tensor before it, which ends at byte " + std::to_string(end));
    }
    while (file != files.end() && extent.begin >= file->begin + file->size) ++file;
    const bool inside = file != files.end() && extent.begin >= file->begin &&
                        extent.bytes <= file->size - (extent.begin - file->begin);
    if (!inside) {
      return error(" and size " + std::to_string(extent.bytes) + " do not lie inside one file");
    }
    end = extent.begin + extent.bytes;
  }
  return Status::ok();
}

Status check_resident_file_sizes(const std::filesystem::path& directory,
                                 const ResidentManifest& manifest) {
  for (const ResidentFile& entry : resident_files(manifest)) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / entry.name));
    if (file.size() == entry.size) continue;
    return corrupt(Where{.file = file.path()},
                   "is " + std::to_string(file.size()) + " bytes long, " + kResidentManifestName +
                       " says " + std::to_string(entry.size),
                   "copy or convert it again");
  }
  return Status::ok();
}

}  // namespace moepack
