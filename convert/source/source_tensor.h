// A tensor of the model that is converted, in whichever kind of file it lies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/gguf/gguf_model.h"
#include "formats/weights/qformat.h"

namespace moepack {

// A value of two pointers, one of them set, or none: "no such tensor". What it refers to lives as
// long as its Checkpoint or GgufModel. Every function but the first needs a tensor.
class SourceTensor {
 public:
  SourceTensor() = default;
  explicit SourceTensor(const TensorRef& tensor) : ref_(&tensor) {}
  explicit SourceTensor(const GgufTensor& tensor) : gguf_(&tensor) {}

  explicit operator bool() const { return ref_ != nullptr || gguf_ != nullptr; }
  friend bool operator==(const SourceTensor&, const SourceTensor&) = default;

  const std::string& name() const;
  // Row-major, the input of a matrix last.
  std::span<const std::uint64_t> shape() const;
  // Plain floats, or ggml's blocks; nullopt for everything else (MLX's words of codes among it).
  std::optional<WeightFormat> format() const;
  // How safetensors calls the elements; of blocks U8.
  DType dtype() const;
  // As its own kind of file calls it: "BF16", "Q4_K".
  std::string type_name() const;
  // Where the model's dimensions come from, for messages: "config.json".
  std::string_view configured_by() const;
  Where where() const;

  // The file and the place in it. A big-endian one holds other bytes than read() gives.
  const File& file() const;
  std::uint64_t offset() const;
  std::uint64_t size() const;  // bytes
  // Fills `out` with bytes [begin, begin + out.size()), both whole elements or blocks, in
  // little-endian form. A range that leaves the tensor is kInvalidArgument; kNotFound when only
  // the shard's header is left. Any number of threads.
  Status read(std::uint64_t begin, std::span<std::byte> out) const;

  bool is_gguf() const { return gguf_ != nullptr; }
  // False when only the shard's header is left.
  bool has_data() const { return is_gguf() || ref_->shard->has_data(); }
  // nullptr for GGUF.
  const SafetensorsFile* shard() const { return is_gguf() ? nullptr : ref_->shard; }

 private:
  const TensorRef* ref_ = nullptr;
  const GgufTensor* gguf_ = nullptr;
};

// The same but for dimensions of 1, which GGUF files leave out or put in as they please.
bool same_but_for_ones(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b);

}  // namespace moepack
