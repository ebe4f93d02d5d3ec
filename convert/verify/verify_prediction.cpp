#include "convert/verify/verify_prediction.h"

#include <algorithm>
#include <map>
#include <optional>

#include "convert/job/parallel.h"
#include "convert/verify/range_compare.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

Difference difference_of(const std::string& file, const std::string& tensor, std::string what,
                         std::string expected = {}, std::string found = {}) {
  Difference difference;
  difference.file = file;
  difference.tensor = tensor;
  difference.what = std::move(what);
  difference.expected = std::move(expected);
  difference.found = std::move(found);
  return difference;
}

// The bytes between the end of the tensor before, or of the file's begin, and this one.
Status check_padding(const File& file, std::uint64_t begin, std::uint64_t end, std::size_t position,
                     DifferenceLog& log) {
  std::vector<std::byte> padding(end - begin);
  MOE_RETURN_IF_ERROR(file.read_at(begin, padding));
  const auto bad = std::find_if(padding.begin(), padding.end(),
                                [](std::byte byte) { return byte != std::byte{0}; });
  if (bad == padding.end()) return Status::ok();
  Difference difference =
      difference_of(file.path(), {}, "the padding holds a byte that is not zero", "0",
                    std::to_string(std::to_integer<int>(*bad)));
  difference.offset = begin + static_cast<std::uint64_t>(bad - padding.begin());
  log.add(position, std::move(difference));
  return Status::ok();
}

// A tensor here and its source; nullptr on one side: it is there only.
struct Pair {
  const PredictionTensor* here = nullptr;
  const SourceTensor* there = nullptr;
};

std::map<std::string_view, Pair> pairs_of(const PredictionManifest& manifest,
                                          const ConvertPlan& plan) {
  std::map<std::string_view, Pair> pairs;
  for (const PredictionTensor& tensor : manifest.tensors) pairs[tensor.name].here = &tensor;
  for (const SourceTensor& tensor : plan.prediction_sources) pairs[tensor.name()].there = &tensor;
  return pairs;
}

// What the two say of themselves, where that differs.
std::optional<Difference> compare_heads(const std::string& manifest, std::string_view name,
                                        const Pair& pair) {
  const std::string tensor(name);
  if (pair.there == nullptr) return difference_of(manifest, tensor, "is not in the source");
  if (pair.here == nullptr) {
    return difference_of(manifest, tensor, "the tensor is missing, the source has it");
  }
  const std::string there = pair.there->type_name() + " " + shape_text(pair.there->shape());
  const std::string here = pair.here->type + " " + shape_text(pair.here->shape);
  if (here == there) return std::nullopt;
  return difference_of(manifest, tensor, "type and shape of the source", there, here);
}

Status compare_bytes(const Pair& pair, const File& file, RangeComparer& comparer,
                     std::size_t position, DifferenceLog& log) {
  const FileRange here{.file = &file, .offset = pair.here->offset, .bytes = pair.here->size};
  const FileRange there{
      .file = &pair.there->file(), .offset = pair.there->offset(), .bytes = pair.there->size()};
  MOE_ASSIGN_OR_RETURN(const auto found, comparer.compare(here, there));
  if (!found.has_value()) return Status::ok();
  Difference difference =
      difference_of(file.path(), pair.here->name, "differs from the source's bytes",
                    std::to_string(std::to_integer<int>(found->expected)),
                    std::to_string(std::to_integer<int>(found->found)));
  difference.offset = found->offset;
  log.add(position, std::move(difference));
  return Status::ok();
}

void add_compared(const std::vector<Pair>& pairs, std::vector<ComparedFormat>& out) {
  std::map<std::string_view, ComparedFormat> sums;
  for (const Pair& pair : pairs) {
    ComparedFormat& sum = sums[pair.here->type];
    sum.part = "prediction";
    sum.source_format = sum.format = pair.here->type;
    sum.copied = true;
    ++sum.matrices;
    sum.bytes += pair.here->size;
  }
  for (auto& [type, sum] : sums) out.push_back(std::move(sum));
}

}  // namespace

Status check_prediction_data(const fs::path& model, const PredictionManifest& manifest,
                             std::size_t threads, DifferenceLog& log, ProgressCounter& progress) {
  log.next_part();
  MOE_ASSIGN_OR_RETURN(const File file, File::open(model / kPredictionDataName));
  std::vector<std::vector<std::byte>> buffers(threads);
  const auto check = [&](std::size_t item, std::size_t worker) -> Status {
    const PredictionTensor& tensor = manifest.tensors[item];
    const std::uint64_t end = tensor.offset + tensor.size;
    const std::uint64_t before =
        item == 0 ? 0 : manifest.tensors[item - 1].offset + manifest.tensors[item - 1].size;
    MOE_RETURN_IF_ERROR(check_padding(file, before, tensor.offset, item, log));
    MOE_ASSIGN_OR_RETURN(const std::uint64_t sum,
                         checksum_of_range(file, tensor.offset, end, buffers[worker]));
    progress.add_bytes(end - before);
    if (sum == tensor.checksum) return Status::ok();
    Difference difference = difference_of(file.path(), tensor.name, "the tensor's checksum",
                                          checksum_text(tensor.checksum), checksum_text(sum));
    difference.offset = tensor.offset;
    log.add(item, std::move(difference));
    return Status::ok();
  };
  return parallel_items(manifest.tensors.size(), threads, check);
}

Status compare_prediction(const SourceComparison& with, const fs::path& model,
                          const PredictionManifest& manifest) {
  with.log.next_part();
  const std::string name = (model / kPredictionManifestName).string();
  std::vector<Pair> comparable;
  for (const auto& [tensor, pair] : pairs_of(manifest, with.plan)) {
    if (auto difference = compare_heads(name, tensor, pair); difference.has_value()) {
      with.log.add(0, *std::move(difference));
    } else {
      comparable.push_back(pair);
    }
  }
  MOE_ASSIGN_OR_RETURN(const File file, File::open(model / kPredictionDataName));
  std::vector<RangeComparer> comparers(with.threads);
  const auto compare = [&](std::size_t item, std::size_t worker) -> Status {
    with.progress.add_bytes(comparable[item].here->size);
    return compare_bytes(comparable[item], file, comparers[worker], item + 1, with.log);
  };
  MOE_RETURN_IF_ERROR(parallel_items(comparable.size(), with.threads, compare));
  add_compared(comparable, with.compared);
  return Status::ok();
}

void log_prediction_fingerprint(const SourceComparison& with, const fs::path& model,
                                const PredictionManifest& manifest) {
  with.log.next_part();
  with.log.add(
      0, difference_of(
             (model / kPredictionManifestName).string(), {},
             "source.fingerprint is that of another checkpoint, " + printable(manifest.source),
             checksum_text(with.source.fingerprint()), checksum_text(manifest.fingerprint)));
}

}  // namespace moepack
