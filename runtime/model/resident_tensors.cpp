#include "runtime/model/resident_tensors.h"

#include <algorithm>
#include <set>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/pack/resident_files.h"

namespace moepack {
namespace {

constexpr std::size_t kPassedBlockBytes = std::size_t{1} << 20;

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

// Reads files into memory and sums their bytes up on the way.
class DataReader {
 public:
  explicit DataReader(bool sums) : sums_(sums) {}

  // Bytes [offset, offset + out.size()) of `file`.
  Status read(const File& file, std::uint64_t offset, std::span<std::byte> out) {
    MOE_RETURN_IF_ERROR(file.read_at(offset, out));
    if (sums_) stream_.add(out);
    return Status::ok();
  }
  // The same for bytes that are not kept.
  Status pass(const File& file, std::uint64_t offset, std::uint64_t size) {
    if (!sums_) return Status::ok();
    block_.resize(kPassedBlockBytes);
    for (std::uint64_t at = 0; at < size; at += kPassedBlockBytes) {
      const std::size_t part = std::min<std::uint64_t>(kPassedBlockBytes, size - at);
      MOE_RETURN_IF_ERROR(read(file, offset + at, std::span(block_).first(part)));
    }
    return Status::ok();
  }
  Status check(std::uint64_t expected, const std::string& file, const std::string& manifest,
               const std::string& remedy) {
    const std::uint64_t sum = stream_.finish();
    if (!sums_ || sum == expected) return Status::ok();
    return corrupt(
        Where{.file = file},
        "checksum is " + checksum_text(sum) + ", " + manifest + " says " + checksum_text(expected),
        "the file is damaged; " + remedy);
  }

 private:
  bool sums_;
  ChecksumStream stream_;
  std::vector<std::byte> block_;
};

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

// One file to where it belongs, but for what is not used.
Status read_file(const File& file, const ResidentFile& entry, const std::vector<Unused>& unused,
                 DataReader& reader, const CompactData& data) {
  std::uint64_t at = entry.begin;
  const std::uint64_t end = entry.begin + entry.size;
  for (const Unused& gap : unused) {
    if (gap.begin < at || gap.end > end) continue;  // of another file
    MOE_RETURN_IF_ERROR(reader.read(file, at - entry.begin, data.part(at, gap.begin)));
    MOE_RETURN_IF_ERROR(reader.pass(file, gap.begin - entry.begin, gap.end - gap.begin));
    at = gap.end;
  }
  return reader.read(file, at - entry.begin, data.part(at, end));
}

}  // namespace

std::byte* LoadedTensor::at(std::uint64_t offset) const { return data + place_of(holes, offset); }

std::uint64_t resident_memory(const ModelDir& model) {
  const std::vector<Unused> unused = unused_bytes(model);
  const std::uint64_t base =
      align_up(model.residents.data_size - total_size(holes_of(unused)), kResidentAlignment);
  // Held while the model's own data are read, before the overlays are.
  const bool passes = !unused.empty() && model.residents.has_checksum;
  const std::uint64_t block = passes ? kPassedBlockBytes : 0;
  std::uint64_t overlays = 0;
  for (const ResidentOverlay& overlay : model.overlays) {
    overlays += align_up(overlay.data_size, kResidentAlignment);
  }
  return base + std::max(block, overlays);
}

Status ResidentTensors::load_base(const ModelDir& model) {
  const ResidentManifest& manifest = model.residents;
  const std::vector<Unused> unused = unused_bytes(model);
  holes_ = holes_of(unused);
  MOE_ASSIGN_OR_RETURN(
      AlignedBuffer memory,
      AlignedBuffer::allocate(manifest.data_size - total_size(holes_), kResidentAlignment));
  const CompactData data(memory.span(), holes_);
  DataReader reader(manifest.has_checksum);
  std::string last;
  std::uint64_t end = 0;
  for (const ResidentFile& entry : resident_files(manifest)) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(model.path / entry.name));
    const std::span<std::byte> between = data.part(end, entry.begin);
    std::fill(between.begin(), between.end(), std::byte{0});
    MOE_RETURN_IF_ERROR(read_file(file, entry, unused, reader, data));
    end = entry.begin + entry.size;
    last = file.path();
  }
  MOE_RETURN_IF_ERROR(
      reader.check(manifest.checksum, last, kResidentManifestName, "convert the checkpoint again"));
  const std::string file = (model.path / kResidentManifestName).string();
  for (const ResidentTensor& t : manifest.tensors) {
    tensors_[t.name] = {&t, memory.data(), holes_, manifest.conventions.v_heads, file, false};
  }
  buffers_.push_back(std::move(memory));
  return Status::ok();
}

Status ResidentTensors::load_overlay(const ModelDir& model, const ResidentOverlay& overlay) {
  const std::filesystem::path directory = model.path / kOverlayDirectory;
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / overlay.data_name()));
  MOE_ASSIGN_OR_RETURN(AlignedBuffer data,
                       AlignedBuffer::allocate(overlay.data_size, kResidentAlignment));
  DataReader reader(overlay.has_checksum);
  MOE_RETURN_IF_ERROR(reader.read(file, 0, data.span()));
  MOE_RETURN_IF_ERROR(reader.check(overlay.checksum, file.path(), overlay.manifest_name(),
                                   "make the overlay again with moepack overlay"));
  const std::string manifest = (directory / overlay.manifest_name()).string();
  for (const OverlayTensor& entry : overlay.tensors) {
    tensors_[entry.tensor.name] = {&entry.tensor, data.data(), {}, entry.v_heads, manifest, true};
  }
  buffers_.push_back(std::move(data));
  return Status::ok();
}

Result<ResidentTensors> ResidentTensors::load(const ModelDir& model) {
  ResidentTensors loaded;
  MOE_RETURN_IF_ERROR(loaded.load_base(model));
  for (const ResidentOverlay& overlay : model.overlays) {
    MOE_RETURN_IF_ERROR(loaded.load_overlay(model, overlay));
  }
  return loaded;
}

LoadedTensor* ResidentTensors::find(std::string_view name) {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace moepack
