#include "convert/source/source_tensor.h"

#include <algorithm>

#include "formats/weights/ggml_types.h"

namespace moepack {

const std::string& SourceTensor::name() const {
  return is_gguf() ? gguf_->info->name : ref_->info->name;
}

std::span<const std::uint64_t> SourceTensor::shape() const {
  return is_gguf() ? gguf_->info->shape : ref_->info->shape;
}

std::optional<WeightFormat> SourceTensor::format() const {
  const auto id = is_gguf() ? gguf_->info->type.format : plain_qformat(ref_->info->dtype);
  if (!id.has_value()) return std::nullopt;
  return WeightFormat{.id = *id};
}

DType SourceTensor::dtype() const {
  return is_gguf() ? gguf_->info->type.storage : ref_->info->dtype;
}

std::string SourceTensor::type_name() const {
  return is_gguf() ? ggml_type_name(gguf_->info->type) : std::string(dtype_name(ref_->info->dtype));
}

std::string_view SourceTensor::configured_by() const {
  return is_gguf() ? "the file's metadata" : "config.json";
}

Where SourceTensor::where() const { return is_gguf() ? gguf_->where() : ref_->where(); }

const File& SourceTensor::file() const {
  return is_gguf() ? gguf_->part->file() : ref_->shard->file();
}

std::uint64_t SourceTensor::offset() const {
  return is_gguf() ? gguf_->info->offset : ref_->info->offset;
}

std::uint64_t SourceTensor::size() const {
  return is_gguf() ? gguf_->info->size : ref_->info->size;
}

Status SourceTensor::read(std::uint64_t begin, std::span<std::byte> out) const {
  return is_gguf() ? gguf_->read(begin, out) : ref_->read(begin, out);
}

bool same_but_for_ones(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  const auto next = [](std::span<const std::uint64_t>& dims) {
    while (!dims.empty() && dims.front() == 1) dims = dims.subspan(1);
  };
  for (next(a), next(b); !a.empty() && !b.empty(); next(a), next(b)) {
    if (a.front() != b.front()) return false;
    a = a.subspan(1);
    b = b.subspan(1);
  }
  return a.empty() && b.empty();
}

}  // namespace moepack
