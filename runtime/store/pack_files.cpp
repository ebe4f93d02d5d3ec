#include "runtime/store/pack_files.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "formats/base/file.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"

namespace moepack {
namespace {

// What a manifest says of bytes, without where they came from.
std::string contents_text(PackManifest manifest) {
  manifest.source = {};
  manifest.report_json.clear();
  return pack_manifest_text(manifest);
}

// A copy of a few layers need not have a manifest; one that it has must agree.
Status check_manifest(const std::filesystem::path& place, const PackManifest& manifest) {
  const std::filesystem::path path = place / kPackManifestName;
  if (!is_there(path)) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxManifestBytes));
  MOE_ASSIGN_OR_RETURN(PackManifest other, parse_pack_manifest(text, path.string()));
  if (contents_text(std::move(other)) == contents_text(manifest)) return Status::ok();
  return corrupt(Where{.file = path.string()}, "describes other experts than the model's pack",
                 "copy the pack again, or leave this --pack-dir out");
}

Status check_size(const std::filesystem::path& path, const LayerEntry& layer) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  if (file.size() == layer.file_size) return Status::ok();
  return corrupt(Where{.file = file.path()},
                 "is " + std::to_string(file.size()) + " bytes long, " + kPackManifestName +
                     " says " + std::to_string(layer.file_size),
                 "copy it again");
}

Status check_places(const std::vector<std::filesystem::path>& places) {
  for (std::size_t i = 1; i < places.size(); ++i) {
    std::error_code error;
    if (!std::filesystem::is_directory(places[i], error)) {
      return not_found(Where{.file = places[i].string()}, "is no directory",
                       "name one with layer files after --pack-dir");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (!std::filesystem::equivalent(places[i], places[j], error)) continue;
      return invalid_argument(
          "--pack-dir " + printable(places[i].string()) + " is a directory that is read already",
          "name another disk's, or leave it out");
    }
  }
  return Status::ok();
}

}  // namespace

std::filesystem::path PackFiles::first() const {
  const auto named = std::find_if(files.begin(), files.end(),
                                  [](const std::filesystem::path& file) { return !file.empty(); });
  return named == files.end() ? std::filesystem::path() : *named;
}

std::uint64_t largest_record_bytes(const PackManifest& manifest) {
  std::uint64_t largest = 0;
  for (const ExpertLayout& layout : manifest.layouts) {
    largest = std::max(largest, layout.record_bytes);
  }
  return largest;
}

PackFiles own_pack_files(const std::filesystem::path& directory, const PackManifest& manifest) {
  PackFiles found;
  for (std::uint32_t layer = 0; layer < manifest.layers.size(); ++layer) {
    const bool has_file = manifest.experts_of(layer) > 0;
    found.files.push_back(has_file ? directory / manifest.layers[layer].file
                                   : std::filesystem::path());
    found.of_layer.emplace_back();
    if (has_file) found.of_layer.back().push_back(layer);
  }
  found.places.assign(found.files.size(), 0);
  return found;
}

Result<PackFiles> find_pack_files(const std::filesystem::path& directory,
                                  const PackManifest& manifest,
                                  std::span<const std::filesystem::path> further) {
  if (further.empty()) return own_pack_files(directory, manifest);
  if (!manifest.has_checksums) {
    return unsupported(Where{.file = directory.string()},
                       "has experts without checksums, whose copies cannot be told from others",
                       "adopt the model with moepack import, or leave --pack-dir out");
  }
  std::vector<std::filesystem::path> places{directory};
  places.insert(places.end(), further.begin(), further.end());
  MOE_RETURN_IF_ERROR(check_places(places));
  PackFiles found;
  found.num_places = static_cast<std::uint32_t>(places.size());
  std::vector<bool> is_used(places.size());
  for (const LayerEntry& layer : manifest.layers) {
    std::vector<std::uint32_t>& of_layer = found.of_layer.emplace_back();
    if (layer.experts.empty()) continue;
    for (std::uint32_t place = 0; place < places.size(); ++place) {
      const std::filesystem::path path = places[place] / layer.file;
      if (!is_there(path)) continue;
      MOE_RETURN_IF_ERROR(check_size(path, layer));
      of_layer.push_back(static_cast<std::uint32_t>(found.files.size()));
      found.files.push_back(path);
      found.places.push_back(place);
      is_used[place] = true;
    }
    if (of_layer.empty()) {
      return not_found(Where{.file = (directory / layer.file).string()},
                       "is neither here nor in a --pack-dir", "name the directory that has it");
    }
  }
  for (std::uint32_t place = 1; place < places.size(); ++place) {
    MOE_RETURN_IF_ERROR(check_manifest(places[place], manifest));
    if (is_used[place]) continue;
    return not_found(Where{.file = places[place].string()}, "holds no layer file of the pack",
                     "copy the pack there, or leave this --pack-dir out");
  }
  return found;
}

}  // namespace moepack
