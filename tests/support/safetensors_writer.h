// Writes safetensors files for tests, with the liberties that writers in the wild take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"

namespace moepack::test {

struct WriterTensor {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;
  std::string bytes;  // as they stand in the file
};

struct WriterOptions {
  enum class Metadata { kNone, kNull, kPt };
  Metadata metadata = Metadata::kPt;
  // true: tensors with larger elements come first, then they go by name, as the Rust writer does
  // it. false: they stay in the order given, as in MLX's files.
  bool sorted = true;
  // The header is padded with spaces until the data section starts at this remainder modulo 8;
  // nullopt: not padded at all, as MLX. 1 puts every tensor at an odd offset.
  std::optional<std::uint64_t> data_start_mod8 = 0;
};

// A file of any header and data: the header's length, then both as they are.
inline std::string safetensors_of(std::string_view header, std::string_view data = {}) {
  std::string file(8, '\0');
  store_le(file.data(), static_cast<std::uint64_t>(header.size()));
  return file.append(header).append(data);
}

inline std::string safetensors_bytes(std::vector<WriterTensor> tensors,
                                     const WriterOptions& options = {}) {
  if (options.sorted) {
    std::sort(tensors.begin(), tensors.end(), [](const WriterTensor& a, const WriterTensor& b) {
      if (a.dtype != b.dtype) return static_cast<int>(a.dtype) > static_cast<int>(b.dtype);
      return a.name < b.name;
    });
  }
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (options.metadata == WriterOptions::Metadata::kNull) header["__metadata__"] = nullptr;
  if (options.metadata == WriterOptions::Metadata::kPt) header["__metadata__"]["format"] = "pt";
  std::string data;
  for (const WriterTensor& tensor : tensors) {
    auto& entry = header[tensor.name];
    entry["dtype"] = dtype_name(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {data.size(), data.size() + tensor.bytes.size()};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  while (options.data_start_mod8.has_value() && (8 + text.size()) % 8 != *options.data_start_mod8) {
    text += ' ';
  }
  return safetensors_of(text, data);
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  std::string bytes(std::filesystem::file_size(path), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return bytes;
}

inline void write_safetensors(const std::filesystem::path& path, std::vector<WriterTensor> tensors,
                              const WriterOptions& options = {}) {
  write_file(path, safetensors_bytes(std::move(tensors), options));
}

}  // namespace moepack::test
