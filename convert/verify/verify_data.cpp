#include "convert/verify/verify_data.h"

#include <algorithm>
#include <set>

#include "convert/job/parallel.h"
#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"
#include "formats/config/architecture.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

// The first byte that is not zero.
std::optional<std::uint64_t> first_nonzero(std::span<const std::byte> bytes) {
  const auto at =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; });
  if (at == bytes.end()) return std::nullopt;
  return static_cast<std::uint64_t>(at - bytes.begin());
}

std::string byte_text(std::byte byte) { return std::to_string(std::to_integer<int>(byte)); }

Difference padding_difference(const File& file, std::uint64_t offset, std::byte found) {
  Difference difference;
  difference.file = file.path();
  difference.offset = offset;
  difference.what = "the padding holds a byte that is not zero";
  difference.expected = "0";
  difference.found = byte_text(found);
  return difference;
}

// [begin, end) of model_weights.bin that belongs to no component.
struct Gap {
  std::uint64_t begin;
  std::uint64_t end;
};

std::vector<Gap> gaps_of(const ResidentManifest& manifest) {
  std::vector<Gap> used;
  for (const ResidentTensor& t : manifest.tensors) {
    for (Component c : stored_components(t.format)) {
      used.push_back({t.offsets[c], t.offsets[c] + t.bytes[c]});
    }
  }
  std::sort(used.begin(), used.end(), [](const Gap& a, const Gap& b) { return a.begin < b.begin; });
  std::vector<Gap> gaps;
  std::uint64_t end = 0;
  for (const Gap& part : used) {
    if (part.begin > end) gaps.push_back({end, part.begin});
    end = std::max(end, part.end);
  }
  if (end < manifest.data_size) gaps.push_back({end, manifest.data_size});
  return gaps;
}

// Checks the parts of gaps that lie in `bytes`, which start at `offset`. `next` is the first gap
// that does not end before.
void check_gaps(const File& file, const std::vector<Gap>& gaps, std::uint64_t offset,
                std::span<const std::byte> bytes, std::size_t& next, DifferenceLog& log) {
  const std::uint64_t end = offset + bytes.size();
  for (; next < gaps.size() && gaps[next].begin < end; ++next) {
    const std::uint64_t begin = std::max(gaps[next].begin, offset);
    const std::uint64_t stop = std::min(gaps[next].end, end);
    const auto part = bytes.subspan(begin - offset, stop - begin);
    if (const auto bad = first_nonzero(part); bad.has_value()) {
      log.add(begin, padding_difference(file, begin + *bad, part[*bad]));
    }
    if (gaps[next].end > end) return;  // goes on in the next block
  }
}

class RecordCheck {
 public:
  RecordCheck(const PackManifest& pack, std::uint32_t layer, const File& file, DifferenceLog& log)
      : pack_(pack), layer_(layer), file_(file), log_(log) {}

  Status run(std::uint32_t expert, std::vector<std::byte>& buffer) const {
    const ExpertEntry& entry = pack_.layers[layer_].experts[expert];
    const std::uint64_t size = pack_.layout_of(layer_, expert).record_bytes;
    const std::uint64_t end = entry.offset + size;
    if (pack_.has_checksums) {
      MOE_ASSIGN_OR_RETURN(const std::uint64_t sum,
                           checksum_of_range(file_, entry.offset, end, buffer));
      if (sum != entry.checksum) {
        Difference difference = at(expert, entry.offset);
        difference.what = "the record's checksum";
        difference.expected = checksum_text(entry.checksum);
        difference.found = checksum_text(sum);
        log_.add(expert, std::move(difference));
      }
    }
    bool clean = true;
    return for_each_block(file_, end, entry.offset + align_up(size, pack_.page_size), buffer,
                          [&](std::uint64_t offset, std::span<const std::byte> bytes) {
                            const auto bad = first_nonzero(bytes);
                            if (!clean || !bad.has_value()) return Status::ok();
                            clean = false;
                            Difference difference =
                                padding_difference(file_, offset + *bad, bytes[*bad]);
                            difference.layer = layer_;
                            difference.expert = expert;
                            log_.add(expert, std::move(difference));
                            return Status::ok();
                          });
  }

 private:
  Difference at(std::uint32_t expert, std::uint64_t offset) const {
    Difference difference;
    difference.file = file_.path();
    difference.layer = layer_;
    difference.expert = expert;
    difference.offset = offset;
    return difference;
  }

  const PackManifest& pack_;
  std::uint32_t layer_;
  const File& file_;
  DifferenceLog& log_;
};

Difference name_difference(const std::string& file, const std::string& tensor,
                           const std::string& what) {
  Difference difference;
  difference.file = file;
  difference.tensor = tensor;
  difference.what = what;
  return difference;
}

}  // namespace

Status check_records(const std::filesystem::path& directory, const PackManifest& pack,
                     std::size_t threads, DifferenceLog& log, ProgressCounter& progress) {
  std::vector<std::vector<std::byte>> buffers(threads);
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    log.next_part();
    if (pack.experts_of(l) == 0) continue;
    MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / pack.layers[l].file));
    const RecordCheck check(pack, l, file, log);
    const auto run = [&](std::size_t item, std::size_t worker) -> Status {
      const auto expert = static_cast<std::uint32_t>(item);
      MOE_RETURN_IF_ERROR(check.run(expert, buffers[worker]));
      progress.add_bytes(align_up(pack.layout_of(l, expert).record_bytes, pack.page_size));
      return Status::ok();
    };
    MOE_RETURN_IF_ERROR(parallel_items(pack.experts_of(l), threads, run));
    progress.layer_done();
  }
  return Status::ok();
}

Status check_resident_data(const ResidentData& data, const ResidentManifest& manifest,
                           DifferenceLog& log, ProgressCounter& progress) {
  log.next_part();
  // Other engines do not say what lies between tensors.
  const std::vector<Gap> gaps = manifest.files.empty() ? gaps_of(manifest) : std::vector<Gap>();
  std::vector<std::byte> buffer;
  ChecksumStream sum;
  std::size_t next_gap = 0;
  for (const ResidentData::Part& part : data.parts()) {
    MOE_RETURN_IF_ERROR(for_each_block(part.file, 0, part.size, buffer,
                                       [&](std::uint64_t at, std::span<const std::byte> bytes) {
                                         sum.add(bytes);
                                         check_gaps(part.file, gaps, at, bytes, next_gap, log);
                                         progress.add_bytes(bytes.size());
                                         return Status::ok();
                                       }));
  }
  if (!manifest.has_checksum || sum.finish() == manifest.checksum) return Status::ok();
  Difference difference;
  difference.file = data.parts().back().file.path();
  difference.what = data.parts().size() == 1 ? "the file's checksum" : "the files' checksum";
  difference.expected = checksum_text(manifest.checksum);
  difference.found = checksum_text(sum.finish());
  log.add(0, std::move(difference));
  return Status::ok();
}

void check_resident_names(const std::filesystem::path& model, const ModelConfig& config,
                          const ResidentManifest& manifest, DifferenceLog& log) {
  const Architecture* names = find_architecture(config.model_type);
  if (names == nullptr) return;
  log.next_part();
  const std::string file = (model / kResidentManifestName).string();
  std::set<std::string> known;
  const auto check = [&](const ResidentRule& rule, std::uint32_t layer) {
    if (!exists_in(rule, config, layer)) return;
    std::vector<std::uint64_t> shape = module_shape(rule, config, layer);
    if (shape.size() == 3 && manifest.conventions.conv1d == ResidentConventions::Conv1d::kCT1) {
      std::swap(shape[1], shape[2]);
    }
    const std::string name = resident_module(rule, layer);
    known.insert(name);
    const auto it = std::lower_bound(manifest.tensors.begin(), manifest.tensors.end(), name,
                                     [](const ResidentTensor& tensor, const std::string& wanted) {
                                       return tensor.name < wanted;
                                     });
    if (it == manifest.tensors.end() || it->name != name) {
      if (rule.role == ModuleRole::kOutputHead && config.tie_word_embeddings) return;
      log.add(0, name_difference(file, name, "the tensor is missing"));
    } else if (it->shape != shape) {
      Difference difference = name_difference(file, name, "the shape that config.json gives");
      difference.expected = shape_text(shape);
      difference.found = shape_text(it->shape);
      log.add(0, std::move(difference));
    }
  };
  for (const ResidentRule& rule : names->residents) {
    if (rule.scope == LayerScope::kModel) check(rule, 0);
    for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
      if (applies_to_layer(rule, config, layer)) check(rule, layer);
    }
  }
  for (const ResidentTensor& tensor : manifest.tensors) {
    if (known.count(tensor.name) != 0) continue;
    log.add(1,
            name_difference(file, tensor.name, "is no tensor of model type " + config.model_type));
  }
}

}  // namespace moepack
