#include "runtime/model/resident_tensors.h"

#include <algorithm>
#include <optional>
#include <set>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/pack/resident_files.h"
#include "runtime/model/ordered_read.h"

namespace moepack {
namespace {

// Bytes [begin, end) of the logical data that nothing points to. A gap lies within one file.
struct Unused {
  std::uint64_t begin;
  std::uint64_t end;
};

std::set<std::string_view> replaced_names(const ModelDir& model) {
  std::set<std::string_view> names;
  for (const ResidentOverlay& overlay : model.overlays) {
    for (const OverlayTensor& entry : overlay.tensors) names.insert(entry.tensor.name);
  }
  return names;
}

// Ascending.
std::vector<Unused> unused_bytes(const ModelDir& model) {
  const std::set<std::string_view> names = replaced_names(model);
  std::vector<Unused> unused;
  for (const ResidentTensor& t : model.residents.tensors) {
    if (!names.contains(t.name)) continue;
    for (Component c : stored_components(t.format)) {
      unused.push_back({t.offsets[c], t.offsets[c] + t.bytes[c]});
    }
  }
  std::sort(unused.begin(), unused.end(),
            [](const Unused& a, const Unused& b) { return a.begin < b.begin; });
  return unused;
}

// The parts of the gaps that take no memory: whole units of alignment.
std::vector<ResidentHole> holes_of(const std::vector<Unused>& unused) {
  std::vector<ResidentHole> holes;
  for (const Unused& gap : unused) {
    const std::uint64_t size = (gap.end - gap.begin) / kResidentAlignment * kResidentAlignment;
    if (size != 0) holes.push_back({gap.begin, size});
  }
  return holes;
}

std::uint64_t total_size(std::span<const ResidentHole> holes) {
  std::uint64_t size = 0;
  for (const ResidentHole& hole : holes) size += hole.size;
  return size;
}

// Where a logical byte outside of the holes lies in memory.
std::uint64_t place_of(std::span<const ResidentHole> holes, std::uint64_t offset) {
  std::uint64_t before = 0;
  for (const ResidentHole& hole : holes) {
    if (hole.begin + hole.size > offset) break;
    before += hole.size;
  }
  return offset - before;
}

// Reads pieces into memory and compares their checksum, where there is one, with a manifest's.
struct CheckedRead {
  std::size_t threads;
  std::optional<std::uint64_t> expected;
  std::string manifest;
  std::string_view remedy;

  // `file` stands in the message of a wrong checksum.
  Status run(std::span<const ReadPiece> pieces, const std::string& file) const {
    MOE_ASSIGN_OR_RETURN(
        const std::uint64_t sum,
        read_in_order(pieces, {.threads = threads, .wants_checksum = expected.has_value()}));
    if (!expected.has_value() || sum == *expected) return Status::ok();
    return corrupt(
        Where{.file = file},
        "checksum is " + checksum_text(sum) + ", " + manifest + " says " + checksum_text(*expected),
        "the file is damaged; " + std::string(remedy));
  }
};

// What the checksum of a manifest's data is; nullopt: none is stated.
template <typename Manifest>
std::optional<std::uint64_t> expected_sum(const Manifest& manifest) {
  if (!manifest.has_checksum) return std::nullopt;
  return manifest.checksum;
}

// The logical data in memory: what is not used has no place there.
class CompactData {
 public:
  CompactData(std::span<std::byte> memory, std::span<const ResidentHole> holes)
      : memory_(memory), holes_(holes) {}

  // Of logical bytes [begin, end), which lie before, between or behind gaps.
  std::span<std::byte> part(std::uint64_t begin, std::uint64_t end) const {
    return memory_.subspan(place_of(holes_, begin), end - begin);
  }

 private:
  std::span<std::byte> memory_;
  std::span<const ResidentHole> holes_;
};

// Adds the pieces of one file: where its bytes belong, and, where a checksum wants them
// (`passes`), those that are not used.
void add_pieces(const File& file, const ResidentFile& entry, const std::vector<Unused>& unused,
                const CompactData& data, bool passes, std::vector<ReadPiece>& pieces) {
  std::uint64_t at = entry.begin;
  const std::uint64_t end = entry.begin + entry.size;
  const auto add_kept = [&](std::uint64_t to) {
    pieces.push_back({&file, at - entry.begin, to - at, data.part(at, to).data()});
  };
  for (const Unused& gap : unused) {
    if (gap.begin < at || gap.end > end) continue;  // of another file
    add_kept(gap.begin);
    if (passes) pieces.push_back({&file, gap.begin - entry.begin, gap.end - gap.begin, nullptr});
    at = gap.end;
  }
  add_kept(end);
}

}  // namespace

std::byte* LoadedTensor::at(std::uint64_t offset) const { return data + place_of(holes, offset); }

std::uint64_t resident_memory(const ModelDir& model) {
  const std::vector<Unused> unused = unused_bytes(model);
  const std::uint64_t base =
      align_up(model.residents.data_size - total_size(holes_of(unused)), kResidentAlignment);
  // Held while the model's own data are read, before the overlays are.
  const bool passes = !unused.empty() && model.residents.has_checksum;
  const std::uint64_t block = passes ? kPassedBytes : 0;
  std::uint64_t overlays = 0;
  for (const ResidentOverlay& overlay : model.overlays) {
    overlays += align_up(overlay.data_size, kResidentAlignment);
  }
  return base + std::max(block, overlays);
}

Status ResidentTensors::load_base(const ModelDir& model, std::size_t threads) {
  const ResidentManifest& manifest = model.residents;
  const std::vector<Unused> unused = unused_bytes(model);
  holes_ = holes_of(unused);
  MOE_ASSIGN_OR_RETURN(
      AlignedBuffer memory,
      AlignedBuffer::allocate(manifest.data_size - total_size(holes_), kResidentAlignment));
  const CompactData data(memory.span(), holes_);
  const std::vector<ResidentFile> entries = resident_files(manifest);
  std::vector<File> files;
  files.reserve(entries.size());  // the pieces point to them
  std::vector<ReadPiece> pieces;
  std::uint64_t end = 0;
  for (const ResidentFile& entry : entries) {
    MOE_ASSIGN_OR_RETURN(File file, File::open(model.path / entry.name));
    files.push_back(std::move(file));
    const std::span<std::byte> between = data.part(end, entry.begin);
    std::fill(between.begin(), between.end(), std::byte{0});
    add_pieces(files.back(), entry, unused, data, manifest.has_checksum, pieces);
    end = entry.begin + entry.size;
  }
  const CheckedRead read{threads, expected_sum(manifest), kResidentManifestName,
                         "convert the checkpoint again"};
  MOE_RETURN_IF_ERROR(read.run(pieces, files.empty() ? std::string() : files.back().path()));
  const std::string file = (model.path / kResidentManifestName).string();
  for (const ResidentTensor& t : manifest.tensors) {
    tensors_[t.name] = {&t, memory.data(), holes_, manifest.conventions.v_heads, file, false};
  }
  buffers_.push_back(std::move(memory));
  return Status::ok();
}

Status ResidentTensors::load_overlay(const ModelDir& model, const ResidentOverlay& overlay,
                                     std::size_t threads) {
  const std::filesystem::path directory = model.path / kOverlayDirectory;
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / overlay.data_name()));
  MOE_ASSIGN_OR_RETURN(AlignedBuffer data,
                       AlignedBuffer::allocate(overlay.data_size, kResidentAlignment));
  const ReadPiece whole{&file, 0, data.span().size(), data.data()};
  const CheckedRead read{threads, expected_sum(overlay), overlay.manifest_name(),
                         "make the overlay again with moepack overlay"};
  MOE_RETURN_IF_ERROR(read.run(std::span(&whole, 1), file.path()));
  const std::string manifest = (directory / overlay.manifest_name()).string();
  for (const OverlayTensor& entry : overlay.tensors) {
    tensors_[entry.tensor.name] = {&entry.tensor, data.data(), {}, entry.v_heads, manifest, true};
  }
  buffers_.push_back(std::move(data));
  return Status::ok();
}

Result<ResidentTensors> ResidentTensors::load(const ModelDir& model, std::size_t threads) {
  ResidentTensors loaded;
  MOE_RETURN_IF_ERROR(loaded.load_base(model, threads));
  for (const ResidentOverlay& overlay : model.overlays) {
    MOE_RETURN_IF_ERROR(loaded.load_overlay(model, overlay, threads));
  }
  return loaded;
}

LoadedTensor* ResidentTensors::find(std::string_view name) {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace moepack
