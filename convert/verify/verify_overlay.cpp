#include "convert/verify/verify_overlay.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "convert/overlay/overlay_plan.h"
#include "convert/verify/range_compare.h"
#include "formats/base/checksum.h"
#include "formats/base/file_blocks.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

Difference difference_in(const fs::path& file, const std::string& tensor, const std::string& what,
                         const std::string& expected, const std::string& found) {
  Difference difference;
  difference.file = file.string();
  difference.tensor = tensor;
  difference.what = what;
  difference.expected = expected;
  difference.found = found;
  return difference;
}

// A matrix as the source gives it.
struct Expected {
  const OverlayTensor* entry;
  const SourceMatrix* source;
};

std::map<std::string_view, Expected> expected_matrices(const std::vector<PlannedOverlay>& planned,
                                                       const std::string& stem) {
  std::map<std::string_view, Expected> expected;
  for (const PlannedOverlay& file : planned) {
    if (file.overlay.stem != stem) continue;
    for (std::size_t i = 0; i < file.sources.size(); ++i) {
      const OverlayTensor& entry = file.overlay.tensors[i];
      expected[entry.tensor.name] = {&entry, &file.sources[i]};
    }
  }
  return expected;
}

class OverlayComparison {
 public:
  OverlayComparison(const SourceComparison& with, const fs::path& directory)
      : with_(with), directory_(directory) {}

  Status compare(const ResidentOverlay& overlay, const std::vector<PlannedOverlay>& planned);
  // What was compared, by type.
  void store() const;

 private:
  Status compare_bytes(const OverlayTensor& entry, const SourceMatrix& source, const File& file);

  const SourceComparison& with_;
  const fs::path& directory_;
  RangeComparer comparer_;
  std::map<std::pair<std::string, std::string>, ComparedFormat> sums_;
};

Status OverlayComparison::compare_bytes(const OverlayTensor& entry, const SourceMatrix& source,
                                        const File& file) {
  const ResidentTensor& t = entry.tensor;
  const FileRange here{.file = &file, .offset = t.offsets.codes(), .bytes = t.bytes.codes()};
  MOE_ASSIGN_OR_RETURN(const auto found, comparer_.compare(here, stored_matrix(source).codes()));
  if (!found.has_value()) return Status::ok();
  Difference difference = difference_in(file.path(), t.name, "differs from the source's bytes",
                                        std::to_string(std::to_integer<int>(found->expected)),
                                        std::to_string(std::to_integer<int>(found->found)));
  difference.offset = found->offset;
  with_.log.add(1, std::move(difference));
  return Status::ok();
}

Status OverlayComparison::compare(const ResidentOverlay& overlay,
                                  const std::vector<PlannedOverlay>& planned) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory_ / overlay.data_name()));
  std::map<std::string_view, Expected> expected = expected_matrices(planned, overlay.stem);
  const fs::path manifest = directory_ / overlay.manifest_name();
  for (const OverlayTensor& entry : overlay.tensors) {
    const ResidentTensor& t = entry.tensor;
    const auto it = expected.find(t.name);
    if (it == expected.end()) {
      with_.log.add(0, difference_in(manifest, t.name, "is not in the source", {}, {}));
      continue;
    }
    const Expected there = it->second;
    expected.erase(it);
    const ResidentTensor& wanted = there.entry->tensor;
    if (t.format != wanted.format || t.rows != wanted.rows || t.cols != wanted.cols ||
        entry.v_heads != there.entry->v_heads) {
      with_.log.add(0, difference_in(manifest, t.name, "type, shape or order of V heads",
                                     to_string(wanted.format), to_string(t.format)));
      continue;
    }
    MOE_RETURN_IF_ERROR(compare_bytes(entry, *there.source, file));
    const std::string format = to_string(t.format);
    const std::string part = "overlay " + std::string(overlay_group_name(overlay.group));
    ComparedFormat& sum = sums_[{part, format}];
    sum.part = part;
    sum.source_format = format;
    sum.format = format;
    sum.copied = true;
    ++sum.matrices;
    sum.bytes += t.bytes.codes();
  }
  for (const auto& [name, missing] : expected) {
    with_.log.add(0, difference_in(manifest, std::string(name),
                                   "is missing, the source has it in this type", {}, {}));
  }
  return Status::ok();
}

void OverlayComparison::store() const {
  for (const auto& [key, sum] : sums_) with_.compared.push_back(sum);
}

}  // namespace

Status check_overlay(const fs::path& model, const ResidentOverlay& overlay, DifferenceLog& log,
                     ProgressCounter& progress) {
  log.next_part();
  const fs::path path = model / kOverlayDirectory / overlay.data_name();
  progress.add_bytes(overlay.data_size);
  if (!overlay.has_checksum) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const std::uint64_t sum, checksum_of_file(path));
  if (sum == overlay.checksum) return Status::ok();
  log.add(0, difference_in(path, {}, "the checksum", checksum_text(overlay.checksum),
                           checksum_text(sum)));
  return Status::ok();
}

Status compare_overlays(const SourceComparison& with, const fs::path& model,
                        const ResidentConventions& conventions,
                        const std::vector<ResidentOverlay>& overlays) {
  if (overlays.empty()) return Status::ok();
  with.log.next_part();
  std::vector<OverlayGroup> groups;
  for (const ResidentOverlay& overlay : overlays) {
    if (std::find(groups.begin(), groups.end(), overlay.group) == groups.end()) {
      groups.push_back(overlay.group);
    }
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<PlannedOverlay> planned,
                       plan_resident_overlays(with.source, with.plan, conventions, groups));
  const fs::path directory = model / kOverlayDirectory;
  OverlayComparison comparison(with, directory);
  for (const ResidentOverlay& overlay : overlays) {
    MOE_RETURN_IF_ERROR(comparison.compare(overlay, planned));
  }
  comparison.store();
  return Status::ok();
}

}  // namespace moepack
