#include "runtime/model/resident_tensors.h"

#include <algorithm>
#include <set>

#include "formats/base/checksum.h"
#include "formats/pack/resident_files.h"

namespace moepack {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

// Bytes [begin, end) of the logical data that nothing points to.
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
    block_.resize(kBlockBytes);
    for (std::uint64_t at = 0; at < size; at += kBlockBytes) {
      const std::size_t part = std::min<std::uint64_t>(kBlockBytes, size - at);
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

// Logical bytes [begin, end) of one file to where they belong, but for what is not used.
Status read_file(const File& file, const ResidentFile& entry, const std::vector<Unused>& unused,
                 DataReader& reader, std::span<std::byte> data) {
  std::uint64_t at = entry.begin;
  const std::uint64_t end = entry.begin + entry.size;
  for (const Unused& gap : unused) {
    if (gap.begin < at || gap.end > end) continue;  // of another file
    MOE_RETURN_IF_ERROR(reader.read(file, at - entry.begin, data.subspan(at, gap.begin - at)));
    MOE_RETURN_IF_ERROR(reader.pass(file, gap.begin - entry.begin, gap.end - gap.begin));
    at = gap.end;
  }
  return reader.read(file, at - entry.begin, data.subspan(at, end - at));
}

}  // namespace

std::uint64_t resident_memory(const ModelDir& model) {
  std::uint64_t bytes = model.residents.data_size;
  for (const Unused& gap : unused_bytes(model)) bytes -= gap.end - gap.begin;
  for (const ResidentOverlay& overlay : model.overlays) bytes += overlay.data_size;
  return bytes;
}

// Pages of the buffer that nothing is written to take no memory.
Status ResidentTensors::load_base(const ModelDir& model) {
  const ResidentManifest& manifest = model.residents;
  MOE_ASSIGN_OR_RETURN(AlignedBuffer data,
                       AlignedBuffer::allocate(manifest.data_size, kResidentAlignment));
  const std::vector<Unused> unused = unused_bytes(model);
  DataReader reader(manifest.has_checksum);
  std::string last;
  std::uint64_t end = 0;
  for (const ResidentFile& entry : resident_files(manifest)) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(model.path / entry.name));
    std::fill_n(data.data() + end, entry.begin - end, std::byte{0});
    MOE_RETURN_IF_ERROR(read_file(file, entry, unused, reader, data.span()));
    end = entry.begin + entry.size;
    last = file.path();
  }
  MOE_RETURN_IF_ERROR(
      reader.check(manifest.checksum, last, kResidentManifestName, "convert the checkpoint again"));
  const std::string file = (model.path / kResidentManifestName).string();
  for (const ResidentTensor& t : manifest.tensors) {
    tensors_[t.name] = {&t, data.data(), manifest.conventions.v_heads, file, false};
  }
  buffers_.push_back(std::move(data));
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
    tensors_[entry.tensor.name] = {&entry.tensor, data.data(), entry.v_heads, manifest, true};
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
