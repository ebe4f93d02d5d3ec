#include <algorithm>
#include <array>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/zstd_frames.h"
#include "formats/calibration/calibration.h"
#include "formats/calibration/calibration_json.h"

namespace moepack {
namespace {

constexpr int kCompressionLevel = 1;
constexpr std::size_t kPlaneValues = kZstdFrameBytes / sizeof(std::uint16_t);
// A file that claims more contents per byte than this gets memory only as the contents appear.
constexpr std::uint64_t kPlausibleRatio = 16;
constexpr std::uint16_t kBf16Exponent = 0x7f80;
constexpr std::uint32_t kF32Exponent = 0x7f800000;

bool is_finite_bf16(std::uint16_t bits) { return (bits & kBf16Exponent) != kBf16Exponent; }

bool is_valid_weight(float weight) {
  const auto bits = std::bit_cast<std::uint32_t>(weight);
  return (bits & kF32Exponent) != kF32Exponent && weight >= 0.0F;
}

// ---- writing ----

class FrameWriter {
 public:
  // Without a file the bytes are only counted.
  FrameWriter(AtomicFile* file, int level) : file_(file), encoder_(level) {}

  Status write(std::span<const std::byte> block) {
    MOE_ASSIGN_OR_RETURN(const std::span<const std::byte> frame, encoder_.encode(block));
    if (file_ != nullptr) MOE_RETURN_IF_ERROR(file_->write_at(size_, frame));
    sum_.add(frame);
    size_ += frame.size();
    return Status::ok();
  }
  Status write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t count = std::min(bytes.size(), kZstdFrameBytes);
      MOE_RETURN_IF_ERROR(write(bytes.first(count)));
      bytes = bytes.subspan(count);
    }
    return Status::ok();
  }
  std::uint64_t size() const { return size_; }
  std::uint64_t checksum() const { return sum_.finish(); }

 private:
  AtomicFile* file_;
  ZstdFrameEncoder encoder_;
  ChecksumStream sum_;
  std::uint64_t size_ = 0;
};

// Stores the low bytes of all values, then their high bytes.
void split_planes(std::span<const std::uint16_t> values, std::span<std::byte> out) {
  const std::size_t count = values.size();
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(values[i] & 0xffU);
  for (std::size_t i = 0; i < count; ++i) out[count + i] = static_cast<std::byte>(values[i] >> 8);
}

void join_planes(std::span<const std::byte> planes, std::span<std::uint16_t> out) {
  const std::size_t count = out.size();
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::uint16_t>(std::to_integer<unsigned>(planes[i]) |
                                        std::to_integer<unsigned>(planes[count + i]) << 8);
  }
}

Status write_inputs(FrameWriter& writer, std::span<const std::uint16_t> inputs) {
  std::vector<std::byte> planes(std::min(inputs.size(), kPlaneValues) * 2);
  while (!inputs.empty()) {
    const std::size_t count = std::min(inputs.size(), kPlaneValues);
    const auto block = std::span(planes).first(count * 2);
    split_planes(inputs.first(count), block);
    MOE_RETURN_IF_ERROR(writer.write(block));
    inputs = inputs.subspan(count);
  }
  return Status::ok();
}

Status write_layer(FrameWriter& writer, const LayerActivations& activations) {
  MOE_RETURN_IF_ERROR(write_inputs(writer, activations.inputs));
  MOE_RETURN_IF_ERROR(writer.write_all(std::as_bytes(std::span(activations.experts))));
  return writer.write_all(std::as_bytes(std::span(activations.weights)));
}

// ---- reading ----

// Where in the calibration something is wrong.
struct LayerPlace {
  const std::string& file;
  std::uint32_t layer;

  Status error(std::uint64_t token, const std::string& what) const {
    return corrupt(
        Where{.file = file},
        "layer " + std::to_string(layer) + ", token " + std::to_string(token) + ": " + what,
        "make the calibration again");
  }
};

Status check_file(const File& file, const CalibrationLayer& entry) {
  if (file.size() != entry.file_size) {
    return corrupt(Where{.file = file.path()},
                   "is " + std::to_string(file.size()) + " bytes long, " +
                       kCalibrationManifestName + " says " + std::to_string(entry.file_size),
                   "copy the calibration again or make it again");
  }
  ChecksumStream sum;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kZstdFrameBytes, file.size()));
  for (std::uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const auto block =
        std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), file.size() - at));
    MOE_RETURN_IF_ERROR(file.read_at(at, block));
    sum.add(block);
  }
  if (sum.finish() == entry.checksum) return Status::ok();
  return corrupt(Where{.file = file.path()},
                 "has checksum " + checksum_text(sum.finish()) + ", " + kCalibrationManifestName +
                     " says " + checksum_text(entry.checksum),
                 "the file is damaged; copy the calibration again or make it again");
}

Status read_inputs(ZstdFrameReader& reader, const LayerPlace& place, std::uint64_t hidden,
                   std::uint64_t count, std::vector<std::uint16_t>& inputs) {
  std::vector<std::byte> planes(std::min<std::uint64_t>(count, kPlaneValues) * 2);
  while (inputs.size() < count) {
    const std::size_t first = inputs.size();
    const std::size_t now = std::min<std::uint64_t>(count - first, kPlaneValues);
    const auto block = std::span(planes).first(now * 2);
    MOE_RETURN_IF_ERROR(reader.read(block));
    inputs.resize(first + now);
    join_planes(block, std::span(inputs).subspan(first, now));
    for (std::size_t i = first; i < first + now; ++i) {
      if (!is_finite_bf16(inputs[i])) return place.error(i / hidden, "an input is not finite");
    }
  }
  return Status::ok();
}

Status skip_bytes(ZstdFrameReader& reader, std::uint64_t count) {
  std::vector<std::byte> block(std::min<std::uint64_t>(count, kZstdFrameBytes));
  for (std::uint64_t left = count; left > 0;) {
    const std::size_t now = std::min<std::uint64_t>(left, block.size());
    MOE_RETURN_IF_ERROR(reader.read(std::span(block).first(now)));
    left -= now;
  }
  return Status::ok();
}

template <typename T>
Status read_values(ZstdFrameReader& reader, std::uint64_t count, std::vector<T>& out) {
  while (out.size() < count) {
    const std::size_t first = out.size();
    out.resize(first + std::min<std::uint64_t>(count - first, kZstdFrameBytes / sizeof(T)));
    MOE_RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(out).subspan(first))));
  }
  return Status::ok();
}

// Checks ids and weights of every token, and the samples that they add up to.
Status check_routing(const LayerPlace& place, const LayerActivations& a,
                     const CalibrationLayer& entry) {
  std::vector<std::uint64_t> samples(entry.samples.size());
  std::vector<std::uint64_t> last_token(samples.size());  // that chose the expert, + 1
  const std::size_t top_k = a.experts_per_token;
  for (std::uint64_t t = 0; t < a.tokens; ++t) {
    for (std::size_t k = 0; k < top_k; ++k) {
      const std::uint16_t expert = a.experts[t * top_k + k];
      if (expert >= samples.size()) {
        return place.error(t, "expert " + std::to_string(expert) + " is not one of " +
                                  std::to_string(samples.size()));
      }
      if (last_token[expert] == t + 1) {
        return place.error(t, "expert " + std::to_string(expert) + " was chosen twice");
      }
      if (!is_valid_weight(a.weights[t * top_k + k])) {
        return place.error(t, "a router weight is negative or not finite");
      }
      last_token[expert] = t + 1;
      ++samples[expert];
    }
  }
  if (samples == entry.samples) return Status::ok();
  return corrupt(Where{.file = place.file},
                 std::string("its tokens per expert are not those of ") + kCalibrationManifestName);
}

// Counts a layer's tokens per expert; kInvalidArgument for what the reader would refuse.
Result<std::vector<std::uint64_t>> count_samples(std::uint32_t layer, std::uint32_t num_experts,
                                                 const LayerActivations& a) {
  const auto refused = [&](std::uint64_t token, std::string_view what) {
    return invalid_argument("layer " + std::to_string(layer) + ", token " + std::to_string(token) +
                            ": " + std::string(what));
  };
  const std::uint64_t uses = a.tokens * a.experts_per_token;
  if (a.inputs.size() != a.tokens * a.hidden_size || a.experts.size() != uses ||
      a.weights.size() != uses) {
    return invalid_argument("activations of layer " + std::to_string(layer) + " have wrong sizes");
  }
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    if (!is_finite_bf16(a.inputs[i])) return refused(i / a.hidden_size, "an input is not finite");
  }
  std::vector<std::uint64_t> samples(num_experts);
  for (std::size_t i = 0; i < uses; ++i) {
    const std::uint64_t token = i / a.experts_per_token;
    if (a.experts[i] >= num_experts) return refused(token, "an expert does not exist");
    if (!is_valid_weight(a.weights[i])) return refused(token, "a router weight is not finite");
    ++samples[a.experts[i]];
  }
  return samples;
}

}  // namespace

Result<CalibrationLayer> write_layer_activations(const std::filesystem::path& directory,
                                                 std::uint32_t layer, std::uint32_t num_experts,
                                                 const LayerActivations& activations) {
  CalibrationLayer entry;
  entry.file = calibration_file_name(layer);
  MOE_ASSIGN_OR_RETURN(entry.samples, count_samples(layer, num_experts, activations));
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(directory / entry.file));
  FrameWriter writer(&file, kCompressionLevel);
  MOE_RETURN_IF_ERROR(write_layer(writer, activations));
  MOE_RETURN_IF_ERROR(file.commit());
  entry.file_size = writer.size();
  entry.checksum = writer.checksum();
  return entry;
}

Result<std::uint64_t> compressed_layer_size(const LayerActivations& activations) {
  FrameWriter writer(nullptr, kCompressionLevel);
  MOE_RETURN_IF_ERROR(write_layer(writer, activations));
  return writer.size();
}

namespace {

Result<LayerActivations> read_layer(const std::filesystem::path& directory,
                                    const CalibrationManifest& manifest, std::uint32_t layer,
                                    bool with_inputs) {
  if (layer >= manifest.layers.size()) {
    return invalid_argument("the calibration has " + std::to_string(manifest.layers.size()) +
                            " layers, not one of number " + std::to_string(layer));
  }
  const CalibrationLayer& entry = manifest.layers[layer];
  if (!entry.has_experts()) {
    return invalid_argument("layer " + std::to_string(layer) + " has no experts");
  }
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / entry.file));
  MOE_RETURN_IF_ERROR(check_file(file, entry));
  const LayerPlace place{file.path(), layer};
  LayerActivations a;
  a.tokens = manifest.tokens;
  a.hidden_size = manifest.hidden_size;
  a.experts_per_token = manifest.experts_per_token;
  // The manifest's bounds keep these far from overflow.
  const std::uint64_t values = a.tokens * a.hidden_size;
  const std::uint64_t uses = a.tokens * a.experts_per_token;
  const std::uint64_t contents = 2 * values + 6 * uses;
  if (contents / kPlausibleRatio <= file.size()) {
    if (with_inputs) a.inputs.reserve(values);
    a.experts.reserve(uses);
    a.weights.reserve(uses);
  }
  ZstdFrameReader reader(file);
  MOE_RETURN_IF_ERROR(with_inputs ? read_inputs(reader, place, a.hidden_size, values, a.inputs)
                                  : skip_bytes(reader, 2 * values));
  MOE_RETURN_IF_ERROR(read_values(reader, uses, a.experts));
  MOE_RETURN_IF_ERROR(read_values(reader, uses, a.weights));
  MOE_RETURN_IF_ERROR(reader.finish());
  MOE_RETURN_IF_ERROR(check_routing(place, a, entry));
  return a;
}

}  // namespace

Result<LayerActivations> read_layer_activations(const std::filesystem::path& directory,
                                                const CalibrationManifest& manifest,
                                                std::uint32_t layer) {
  return read_layer(directory, manifest, layer, true);
}

Result<LayerActivations> read_layer_routing(const std::filesystem::path& directory,
                                            const CalibrationManifest& manifest,
                                            std::uint32_t layer) {
  return read_layer(directory, manifest, layer, false);
}

}  // namespace moepack
