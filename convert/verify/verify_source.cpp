#include "convert/verify/verify_source.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "convert/job/parallel.h"
#include "convert/overlay/overlay.h"
#include "convert/source/expert_name.h"
#include "convert/source/stored_matrix.h"
#include "convert/verify/range_compare.h"
#include "convert/verify/rounding_error.h"
#include "formats/base/checksum.h"
#include "formats/base/number_text.h"
#include "formats/base/paths.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

struct Worker {
  BlockDecoder here;
  BlockDecoder there;
  RangeComparer bytes;
};

// How two matrices of the same place are compared.
enum class Compare : std::uint8_t { kBytes, kRounded, kLoosely };

// How codes came about, as far as this matters here.
enum class Method : std::uint8_t { kRounds, kForeign, kOther };

Method method_of(const PackManifest& pack) {
  const std::string& method = pack.source.method;
  if (method.empty() || method == kImportMethod) return Method::kForeign;
  const bool rounds = method == "copy" || method == "repack" || method == "decode" ||
                      method == "f32" || method == "bf16" || method == "mlx-affine" ||
                      method == kOverlayMethod;
  return rounds ? Method::kRounds : Method::kOther;
}

Compare mode_of(const StoredMatrix& here, const StoredMatrix& there, Method method) {
  const bool same = here.format == there.format;
  if (same && method != Method::kOther) return Compare::kBytes;
  return method == Method::kRounds ? Compare::kRounded : Compare::kLoosely;
}

// What was found about a piece of a matrix.
struct Finding {
  RoundingError error;
  std::optional<ByteDifference> byte;  // the first that differs
  Component part = Component::kCodes;
};

Status compare_range(const FileRange& here, const FileRange& there, Component part, Worker& worker,
                     Finding& finding) {
  if (finding.byte.has_value()) return Status::ok();
  MOE_ASSIGN_OR_RETURN(finding.byte, worker.bytes.compare(here, there));
  finding.part = part;
  return Status::ok();
}

// Elements [begin, end) of two matrices of one shape, begin a multiple of kDecodeBlock.
Status compare_elements(const StoredMatrix& here, const StoredMatrix& there, std::uint64_t begin,
                        std::uint64_t end, bool limited, Worker& worker, RoundingError& error) {
  for (std::uint64_t at = begin; at < end; at += kDecodeBlock) {
    const std::uint64_t count = std::min(kDecodeBlock, end - at);
    MOE_ASSIGN_OR_RETURN(const DecodedBlock a, worker.here.decode(here, at, count));
    MOE_ASSIGN_OR_RETURN(const DecodedBlock b, worker.there.decode(there, at, count));
    add_block(a, at, b.values, limited, error);
  }
  return Status::ok();
}

Status compare_matrix(const StoredMatrix& here, const StoredMatrix& there, Compare mode,
                      Worker& worker, Finding& finding) {
  if (mode != Compare::kBytes) {
    return compare_elements(here, there, 0, here.elements(), mode == Compare::kRounded, worker,
                            finding.error);
  }
  for (Component c : stored_components(here.format)) {
    MOE_RETURN_IF_ERROR(compare_range(here.ranges[c], there.ranges[c], c, worker, finding));
  }
  return Status::ok();
}

// A matrix that was compared: for messages and sums.
struct Place {
  const StoredMatrix& here;
  const StoredMatrix& there;
  std::string name;
  std::optional<std::uint32_t> layer;
  std::optional<std::uint32_t> expert;
};

// The difference that a finding amounts to, if any.
std::optional<Difference> judge(const Place& place, const Finding& finding, Compare mode) {
  Difference difference;
  difference.file = place.here.codes().file->path();
  difference.layer = place.layer;
  difference.expert = place.expert;
  difference.tensor = place.name;
  if (finding.byte.has_value()) {
    if (stored_components(place.here.format).size() > 1) {
      difference.tensor += component_suffix(finding.part);
    }
    difference.offset = finding.byte->offset;
    difference.what = "differs from the source's bytes";
    difference.expected = std::to_string(std::to_integer<int>(finding.byte->expected));
    difference.found = std::to_string(std::to_integer<int>(finding.byte->found));
    return difference;
  }
  const RoundingError& error = finding.error;
  if (error.beyond > 0) {
    difference.offset = place.here.codes().file_offset(
        component_byte(place.here.format, Component::kCodes, error.first_element));
    difference.what = std::to_string(error.beyond) + " values are farther from the source than " +
                      to_string(place.here.format) + " rounds, the first at row " +
                      std::to_string(error.first_element / place.here.cols) + ", column " +
                      std::to_string(error.first_element % place.here.cols);
    difference.expected = six_digits(static_cast<double>(error.first_source)) + " +- " +
                          six_digits(error.first_limit);
    difference.found = six_digits(static_cast<double>(error.first_stored));
    return difference;
  }
  if (mode == Compare::kLoosely && !(error.relative_rms() <= kMaxRelativeRms)) {
    difference.offset = place.here.codes().offset;
    difference.what = "the relative error of its values";
    difference.expected = "below " + six_digits(kMaxRelativeRms);
    difference.found = six_digits(error.relative_rms());
    return difference;
  }
  return std::nullopt;
}

// Sums over all matrices of the same two formats.
class Classes {
 public:
  explicit Classes(std::string part) : part_(std::move(part)) {}

  void add(const Place& place, const Finding& finding, Compare mode) {
    const std::string from = to_string(place.there.format);
    const std::string to = to_string(place.here.format);
    Entry& entry = entries_[{from, to, mode == Compare::kBytes}];
    ComparedFormat& sum = entry.sum;
    sum.part = part_;
    sum.source_format = from;
    sum.format = to;
    sum.copied = mode == Compare::kBytes;
    ++sum.matrices;
    sum.bytes += place.here.bytes();
    if (sum.copied) return;
    entry.error.add(finding.error);
    sum.relative_rms = entry.error.relative_rms();
    sum.largest = entry.error.largest;
    if (sum.worst.empty() || finding.error.relative_rms() > sum.worst_relative_rms) {
      sum.worst = place.name;
      sum.worst_relative_rms = finding.error.relative_rms();
    }
  }

  void store(std::vector<ComparedFormat>& out) const {
    for (const auto& [key, entry] : entries_) out.push_back(entry.sum);
  }

 private:
  struct Entry {
    ComparedFormat sum;
    RoundingError error;
  };
  std::string part_;
  std::map<std::tuple<std::string, std::string, bool>, Entry> entries_;
};

Difference manifest_difference(const std::string& file, const std::string& what,
                               const std::string& expected, const std::string& found) {
  Difference difference;
  difference.file = file;
  difference.what = what;
  difference.expected = expected;
  difference.found = found;
  return difference;
}

// Dimensions that are not those of the source; true when all agree.
bool dimensions_match(const SourceComparison& with, const std::string& file,
                      const PackManifest& pack) {
  const PackManifest& source = with.plan.pack;
  bool same = true;
  const auto check = [&](const char* what, std::uint64_t expected, std::uint64_t found) {
    if (expected == found) return;
    same = false;
    with.log.add(0,
                 manifest_difference(file, what, std::to_string(expected), std::to_string(found)));
  };
  check("num_layers", source.num_layers, pack.num_layers);
  check("num_experts", source.num_experts, pack.num_experts);
  check("hidden_size", source.hidden_size, pack.hidden_size);
  check("expert_width", source.expert_width, pack.expert_width);
  for (std::uint32_t l = 0; same && l < pack.num_layers; ++l) {
    check("the number of experts of a layer", source.experts_of(l), pack.experts_of(l));
  }
  return same;
}

// A piece of a resident matrix that one worker compares: all of it where bytes are equal, else at
// most kPieceElements elements.
struct Piece {
  std::size_t pair;
  std::uint64_t begin;
  std::uint64_t end;
};
constexpr std::uint64_t kPieceElements = 8 * kDecodeBlock;

struct ResidentPair {
  const ResidentTensor* tensor;
  StoredMatrix here;
  StoredMatrix there;
  Compare mode;
};

// Pairs of the same name; what has no partner or another shape goes to the log.
std::vector<ResidentPair> pair_residents(const SourceComparison& with, const std::string& manifest,
                                         const ResidentManifest& residents,
                                         const ResidentData& data) {
  std::vector<ResidentPair> pairs;
  const std::vector<ResidentTensor>& theirs = with.plan.resident.tensors;
  std::map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < theirs.size(); ++i) by_name[theirs[i].name] = i;
  const auto report = [&](const std::string& name, const std::string& what,
                          const std::string& expected, const std::string& found) {
    Difference difference = manifest_difference(manifest, what, expected, found);
    difference.tensor = name;
    with.log.add(0, std::move(difference));
  };
  for (const ResidentTensor& tensor : residents.tensors) {
    const auto it = by_name.find(tensor.name);
    if (it == by_name.end()) {
      report(tensor.name, "the tensor is not in the source", {}, {});
      continue;
    }
    const std::size_t i = it->second;
    by_name.erase(it);
    if (tensor.shape != theirs[i].shape) {
      report(tensor.name, "the shape", shape_text(theirs[i].shape), shape_text(tensor.shape));
      continue;
    }
    ResidentPair pair{.tensor = &tensor,
                      .here = data.matrix(tensor),
                      .there = stored_matrix(with.plan.resident_sources[i]),
                      .mode = Compare::kBytes};
    pair.mode = mode_of(pair.here, pair.there, Method::kRounds);
    pairs.push_back(std::move(pair));
  }
  for (const auto& [name, i] : by_name) {
    report(std::string(name), "the tensor is missing, the source has it", {}, {});
  }
  return pairs;
}

std::vector<Piece> cut_into_pieces(const std::vector<ResidentPair>& pairs) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::uint64_t elements = pairs[i].here.elements();
    const std::uint64_t size = pairs[i].mode == Compare::kBytes ? elements : kPieceElements;
    for (std::uint64_t at = 0; at < elements; at += size) {
      pieces.push_back({i, at, std::min(elements, at + size)});
    }
  }
  return pieces;
}

// The matrix's bytes in proportion to its first `elements`: differences add up to all of them.
std::uint64_t bytes_before(const StoredMatrix& matrix, std::uint64_t elements) {
  const double all = static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  return static_cast<std::uint64_t>(static_cast<double>(matrix.bytes()) *
                                    (static_cast<double>(elements) / all));
}

}  // namespace

void log_fingerprint(const SourceComparison& with, const std::filesystem::path& directory,
                     const PackManifest& pack) {
  with.log.next_part();
  with.log.add(0, manifest_difference((directory / kPackManifestName).string(),
                                      "source.fingerprint is that of another checkpoint, " +
                                          pack.source.name + "; the pack is not compared",
                                      checksum_text(with.source.fingerprint()),
                                      checksum_text(pack.source.fingerprint)));
}

Status compare_experts(const SourceComparison& with, const std::filesystem::path& directory,
                       const PackManifest& pack) {
  with.log.next_part();
  if (!dimensions_match(with, (directory / kPackManifestName).string(), pack)) return Status::ok();
  const Method method = method_of(pack);
  Classes classes("experts of " + directory_name(directory));
  std::vector<Worker> workers(with.threads);
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    with.log.next_part();
    if (pack.experts_of(l) == 0) continue;
    MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / pack.layers[l].file));
    const auto pair_of = [&](std::uint32_t e, Projection p) {
      return std::pair(
          stored_matrix(pack.layout_of(l, e).of(p), file, pack.layers[l].experts[e].offset),
          stored_matrix(with.plan.experts.of(l, e, p)));
    };
    std::vector<std::array<Finding, kProjections>> findings(pack.experts_of(l));
    const auto run = [&](std::size_t item, std::size_t w) -> Status {
      const auto expert = static_cast<std::uint32_t>(item);
      for (Projection p : kAllProjections) {
        const auto [here, there] = pair_of(expert, p);
        MOE_RETURN_IF_ERROR(compare_matrix(here, there, mode_of(here, there, method), workers[w],
                                           findings[item][static_cast<std::size_t>(p)]));
      }
      with.progress.add_bytes(with.plan.experts.bytes(l, expert));
      return Status::ok();
    };
    MOE_RETURN_IF_ERROR(parallel_items(pack.experts_of(l), with.threads, run));
    with.progress.layer_done();
    for (std::uint32_t e = 0; e < pack.experts_of(l); ++e) {
      for (Projection p : kAllProjections) {
        const auto [here, there] = pair_of(e, p);
        const Finding& finding = findings[e][static_cast<std::size_t>(p)];
        const Compare mode = mode_of(here, there, method);
        classes.add({here, there, expert_name(l, e, p), l, e}, finding, mode);
        // The layer and the expert stand in the message already.
        const Place place{here, there, std::string(projection_name(p)), l, e};
        if (auto difference = judge(place, finding, mode); difference.has_value()) {
          with.log.add(e, *std::move(difference));
        }
      }
    }
  }
  classes.store(with.compared);
  return Status::ok();
}

Status compare_residents(const SourceComparison& with, const std::filesystem::path& model,
                         const ResidentManifest& residents, const ResidentData& data) {
  with.log.next_part();
  const std::string manifest = (model / kResidentManifestName).string();
  if (!(residents.conventions == with.plan.resident.conventions)) {
    with.log.add(0,
                 manifest_difference(manifest, "conventions are not those of the source", {}, {}));
  }
  const std::vector<ResidentPair> pairs = pair_residents(with, manifest, residents, data);
  const std::vector<Piece> pieces = cut_into_pieces(pairs);
  std::vector<Finding> findings(pieces.size());
  std::vector<Worker> workers(with.threads);
  const auto run = [&](std::size_t item, std::size_t w) -> Status {
    const Piece& piece = pieces[item];
    const ResidentPair& pair = pairs[piece.pair];
    with.progress.add_bytes(bytes_before(pair.there, piece.end) -
                            bytes_before(pair.there, piece.begin));
    if (pair.mode == Compare::kBytes) {
      return compare_matrix(pair.here, pair.there, pair.mode, workers[w], findings[item]);
    }
    return compare_elements(pair.here, pair.there, piece.begin, piece.end, true, workers[w],
                            findings[item].error);
  };
  MOE_RETURN_IF_ERROR(parallel_items(pieces.size(), with.threads, run));
  Classes classes("residents");
  for (std::size_t i = 0; i < pieces.size();) {
    const ResidentPair& pair = pairs[pieces[i].pair];
    Finding whole = findings[i];
    for (++i; i < pieces.size() && &pairs[pieces[i].pair] == &pair; ++i) {
      whole.error.add(findings[i].error);
    }
    const Place place{pair.here, pair.there, pair.tensor->name, std::nullopt, std::nullopt};
    classes.add(place, whole, pair.mode);
    if (auto difference = judge(place, whole, pair.mode); difference.has_value()) {
      with.log.add(1, *std::move(difference));
    }
  }
  classes.store(with.compared);
  return Status::ok();
}

}  // namespace moepack
