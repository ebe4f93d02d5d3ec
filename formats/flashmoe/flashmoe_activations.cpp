#include "formats/flashmoe/flashmoe_activations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"
#include "formats/base/limits.h"

namespace moepack {
namespace {

constexpr std::uint64_t kHeadBytes = 8;  // layer and K
constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
constexpr const char* kRemedy =
    "the dump is damaged, or of a model with another hidden size, or still being written";

// Records are wider than this: their heads are read one by one.
constexpr std::uint64_t kWideRecord = std::uint64_t{64} << 10;

// Rounds one input to bf16; false when a value is not finite there.
bool round_input(const std::byte* values, std::span<std::uint16_t> out) {
  constexpr std::uint16_t kExponent = 0x7f80;
  bool finite = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = f32_to_bf16(load_le<float>(values + i * sizeof(float)));
    finite = finite && (out[i] & kExponent) != kExponent;
  }
  return finite;
}

}  // namespace

std::uint64_t FlashMoeActivations::record_bytes() const {
  return kHeadBytes + experts_per_token_ * (sizeof(std::int32_t) + input_bytes());
}

Status FlashMoeActivations::record_error(std::uint64_t record, std::uint32_t layer,
                                         std::uint64_t at, std::string_view what) const {
  return corrupt(Where{.file = file_.path(), .offset = record * record_bytes() + at},
                 "record " + std::to_string(record) + " of layer " + std::to_string(layer) + " " +
                     std::string(what),
                 kRemedy);
}

Result<FlashMoeActivations> FlashMoeActivations::open(const std::filesystem::path& path,
                                                      const ActivationDumpDimensions& dims) {
  // Of any model; beyond, sizes of records could overflow.
  if (dims.num_layers == 0 || dims.num_experts == 0 || dims.num_experts > kMaxLayerExperts ||
      dims.hidden_size == 0 || dims.hidden_size > kMaxModelDimension) {
    return invalid_argument("an activation dump is read with the dimensions of its model");
  }
  MOE_ASSIGN_OR_RETURN(File file, File::open(path));
  FlashMoeActivations dump(std::move(file), dims);
  MOE_RETURN_IF_ERROR(dump.walk());
  return dump;
}

Status FlashMoeActivations::walk() {
  const std::uint64_t size = file_.size();
  const Where where{.file = file_.path(), .offset = 0};
  std::array<std::byte, kHeadBytes> first;
  if (size < kHeadBytes) return corrupt(where, "the file holds no whole record", kRemedy);
  MOE_RETURN_IF_ERROR(file_.read_at(0, first));
  const auto chosen = load_le<std::int32_t>(first.data() + 4);
  if (chosen <= 0 || static_cast<std::uint32_t>(chosen) > dims_.num_experts) {
    return corrupt(where,
                   "record 0 has K = " + std::to_string(chosen) + ", the model " +
                       std::to_string(dims_.num_experts) + " experts a layer",
                   kRemedy);
  }
  experts_per_token_ = static_cast<std::uint32_t>(chosen);
  const std::uint64_t stride = record_bytes();
  const std::uint64_t per_read =
      stride > kWideRecord ? 1 : std::max<std::uint64_t>(1, kBlockBytes / stride);
  std::vector<std::byte> block(std::min(per_read == 1 ? kHeadBytes : per_read * stride, size));
  for (std::uint64_t begin = 0; begin * stride < size; begin += per_read) {
    const std::uint64_t at = begin * stride;
    const auto part = std::span(block).first(std::min<std::uint64_t>(block.size(), size - at));
    MOE_RETURN_IF_ERROR(file_.read_at(at, part));
    for (std::uint64_t i = 0; i < per_read && i * stride < part.size(); ++i) {
      MOE_RETURN_IF_ERROR(add_record(begin + i, part.subspan(i * stride)));
    }
  }
  return Status::ok();
}

Status FlashMoeActivations::add_record(std::uint64_t record, std::span<const std::byte> head) {
  const std::uint64_t at = record * record_bytes();
  const Where where{.file = file_.path(), .offset = at};
  if (head.size() < kHeadBytes) {
    return corrupt(where,
                   "record " + std::to_string(record) + " is cut short by the end of the file",
                   kRemedy);
  }
  const auto layer = load_le<std::int32_t>(head.data());
  const auto chosen = load_le<std::int32_t>(head.data() + 4);
  if (layer < 0 || static_cast<std::uint32_t>(layer) >= dims_.num_layers) {
    return corrupt(where,
                   "record " + std::to_string(record) + " is of layer " + std::to_string(layer) +
                       ", the model has " + std::to_string(dims_.num_layers),
                   kRemedy);
  }
  const auto index = static_cast<std::uint32_t>(layer);
  if (chosen < 0 || static_cast<std::uint32_t>(chosen) != experts_per_token_) {
    return record_error(
        record, index, 4,
        "has K = " + std::to_string(chosen) + ", record 0 " + std::to_string(experts_per_token_));
  }
  if (file_.size() - at < record_bytes()) {
    return record_error(record, index, 0, "is cut short by the end of the file");
  }
  Layer& list = layers_[index];
  ++list.records;
  if (!list.runs.empty()) {
    Run& run = list.runs.back();
    if (run.count == 1) run.step = record - run.first;
    if (record - run.last() == run.step) {
      ++run.count;
      return Status::ok();
    }
  }
  list.runs.push_back({.first = record, .step = 0, .count = 1});
  return Status::ok();
}

Result<LayerActivations> FlashMoeActivations::read_layer(std::uint32_t layer) const {
  if (layer >= dims_.num_layers || layers_[layer].records == 0) {
    return not_found(Where{.file = file_.path()},
                     "holds no record of layer " + std::to_string(layer),
                     "collect the activations of all layers");
  }
  const std::uint64_t tokens = layers_[layer].records;
  LayerActivations out;
  out.tokens = tokens;
  out.hidden_size = dims_.hidden_size;
  out.experts_per_token = experts_per_token_;
  // Less than the file itself, which the walk has measured.
  out.inputs.resize(tokens * dims_.hidden_size);
  out.experts.resize(tokens * experts_per_token_);
  out.weights.assign(tokens * experts_per_token_, 1.0F / static_cast<float>(experts_per_token_));
  std::vector<std::byte> buffer(record_bytes());
  std::uint64_t token = 0;
  for (const Run& run : layers_[layer].runs) {
    for (std::uint64_t i = 0; i < run.count; ++i, ++token) {
      MOE_RETURN_IF_ERROR(read_record(layer, run.first + i * run.step, buffer, token, out));
    }
  }
  return out;
}

Status FlashMoeActivations::read_record(std::uint32_t layer, std::uint64_t record,
                                        std::span<std::byte> buffer, std::uint64_t token,
                                        LayerActivations& out) const {
  MOE_RETURN_IF_ERROR(file_.read_at(record * record_bytes(), buffer));
  if (load_le<std::uint32_t>(buffer.data()) != layer ||
      load_le<std::uint32_t>(buffer.data() + 4) != experts_per_token_) {
    return record_error(record, layer, 0, "has changed since the file was opened");
  }
  const std::span<std::uint16_t> experts =
      std::span(out.experts).subspan(token * experts_per_token_, experts_per_token_);
  const std::uint64_t stride = sizeof(std::int32_t) + input_bytes();
  const std::byte* input = buffer.data() + kHeadBytes + sizeof(std::int32_t);
  for (std::size_t k = 0; k < experts.size(); ++k) {
    const std::uint64_t at = kHeadBytes + k * stride;
    const auto expert = load_le<std::int32_t>(buffer.data() + at);
    if (expert < 0 || static_cast<std::uint32_t>(expert) >= dims_.num_experts) {
      return record_error(record, layer, at,
                          "names expert " + std::to_string(expert) + ", the model has " +
                              std::to_string(dims_.num_experts) + " a layer");
    }
    experts[k] = static_cast<std::uint16_t>(expert);
    if (std::find(experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(k), experts[k]) !=
        experts.begin() + static_cast<std::ptrdiff_t>(k)) {
      return record_error(record, layer, at, "names expert " + std::to_string(expert) + " twice");
    }
    if (std::memcmp(buffer.data() + at + sizeof(std::int32_t), input, input_bytes()) != 0) {
      return record_error(
          record, layer, at,
          "has another input for expert " + std::to_string(expert) + " than for its first");
    }
  }
  if (!round_input(input,
                   std::span(out.inputs).subspan(token * dims_.hidden_size, dims_.hidden_size))) {
    return record_error(record, layer, kHeadBytes + sizeof(std::int32_t),
                        "has an input with NaN or infinity");
  }
  return Status::ok();
}

}  // namespace moepack
