// Writes a GGUF file, version 3, little-endian: keys and tensors are named first, which gives every
// byte its place; then the tensors' bytes come in any order, and the file appears whole or not at
// all. The same keys and tensors in the same order give the same bytes.
//
// Source: the GGUF specification (ggml/docs/gguf.md) and ggml's gguf.cpp. What formats/gguf/gguf.h
// would refuse is not written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/gguf/gguf_metadata.h"
#include "formats/weights/ggml_types.h"

namespace moepack {

constexpr std::uint64_t kGgufAlignment = 32;  // the format's default, which needs no key
constexpr std::size_t kMaxGgufTensorName = 63;
constexpr std::size_t kMaxGgufDimensions = 4;

struct GgufOutputTensor {
  std::string name;
  GgmlType type;
  std::vector<std::uint64_t> shape;  // row-major, the contiguous dimension last
  std::uint64_t offset = 0;          // of the data, from the start of the data section
  std::uint64_t size = 0;            // bytes, without padding
};

// A file in the making under a temporary name. write_at may be called from several threads on
// disjoint ranges; without commit() nothing is left.
class GgufOutput {
 public:
  // Writes `data` at byte `begin` of `tensor`, which is one of the head's. kInvalidArgument: the
  // data would leave the tensor.
  Status write_at(const GgufOutputTensor& tensor, std::uint64_t begin,
                  std::span<const std::byte> data);
  Status commit() { return file_.commit(); }

 private:
  friend class GgufHead;
  GgufOutput(AtomicFile file, std::uint64_t data_start)
      : file_(std::move(file)), data_start_(data_start) {}
  AtomicFile file_;
  std::uint64_t data_start_;
};

// The keys and tensors of a file to be written. Memory: the keys' bytes and about 200 bytes a
// tensor. Used by one thread.
class GgufHead {
 public:
  // kInvalidArgument: a key that is empty, too long or stands already. The type of the value in the
  // file is that of the argument; sizes and counts are std::uint32_t in llama.cpp's keys.
  Status add(std::string_view key, bool value);
  Status add(std::string_view key, std::uint8_t value);
  Status add(std::string_view key, std::int8_t value);
  Status add(std::string_view key, std::uint16_t value);
  Status add(std::string_view key, std::int16_t value);
  Status add(std::string_view key, std::uint32_t value);
  Status add(std::string_view key, std::int32_t value);
  Status add(std::string_view key, std::uint64_t value);
  Status add(std::string_view key, std::int64_t value);
  Status add(std::string_view key, float value);
  Status add(std::string_view key, double value);
  Status add(std::string_view key, std::string_view value);
  // Without this overload a string literal would become a bool.
  Status add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  Status add_list(std::string_view key, std::span<const std::uint32_t> values);
  Status add_list(std::string_view key, std::span<const std::int32_t> values);
  Status add_list(std::string_view key, std::span<const float> values);
  Status add_list(std::string_view key, const std::vector<bool>& values);
  Status add_list(std::string_view key, std::span<const std::string> values);

  // Appends a tensor behind those before it. kInvalidArgument: a name that stands already or has
  // not 1 to 63 bytes, no or more than four dimensions, one of 0, rows that are no whole blocks, a
  // size that overflows.
  Status add_tensor(std::string_view name, const GgmlType& type, std::vector<std::uint64_t> shape);
  std::span<const GgufOutputTensor> tensors() const { return tensors_; }
  // Size of the whole file in bytes.
  std::uint64_t file_size() const;

  // Takes the whole file's space on the disk and writes the head; padding between tensors is zero.
  Result<GgufOutput> create(const std::filesystem::path& path) const;

 private:
  Status begin_key(std::string_view key, GgufValueType type);
  Status begin_list(std::string_view key, GgufValueType element, std::size_t count);
  std::string infos() const;
  std::uint64_t data_start(std::uint64_t info_bytes) const;

  std::string keys_;  // their bytes in the file
  std::set<std::string, std::less<>> key_names_;
  std::vector<GgufOutputTensor> tensors_;
  std::set<std::string, std::less<>> tensor_names_;
  std::uint64_t data_size_ = 0;
};

}  // namespace moepack
