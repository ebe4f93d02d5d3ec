// Looks at checkpoints and model directories without the project's readers, so that the converter
// is not checked with itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "tests/support/safetensors_writer.h"

namespace moepack::test {

struct RawTensor {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};

// All tensors of all safetensors files of a directory.
inline std::map<std::string, RawTensor> raw_tensors(const std::filesystem::path& directory) {
  std::map<std::string, RawTensor> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string file = read_file(entry.path());
    const auto header_size = load_le<std::uint64_t>(file.data());
    const auto header = nlohmann::json::parse(file.substr(8, header_size));
    for (const auto& [name, info] : header.items()) {
      if (name == "__metadata__") continue;
      const auto begin = info.at("data_offsets")[0].get<std::uint64_t>();
      const auto end = info.at("data_offsets")[1].get<std::uint64_t>();
      tensors[name] = {info.at("dtype").get<std::string>(),
                       info.at("shape").get<std::vector<std::uint64_t>>(),
                       file.substr(8 + header_size + begin, end - begin)};
    }
  }
  return tensors;
}

// Slice `index` of `count` equal ones along the first dimension.
inline std::string slice(const RawTensor& tensor, std::size_t index, std::size_t count) {
  const std::size_t size = tensor.bytes.size() / count;
  return tensor.bytes.substr(index * size, size);
}

// Relative path -> contents of every file below a directory.
inline std::map<std::string, std::string> directory_contents(
    const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_directory()) continue;
    files[entry.path().lexically_relative(directory).string()] = read_file(entry.path());
  }
  return files;
}

inline std::string layer_path(std::uint32_t layer) {
  return "packed_experts/layer_0" + std::to_string(layer) + ".bin";
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_file(path));
}

// model_weights.bin by what model_weights.json says.
class ResidentFile {
 public:
  explicit ResidentFile(const std::filesystem::path& model)
      : manifest_(read_json(model / "model_weights.json")),
        data_(read_file(model / "model_weights.bin")) {}

  const nlohmann::json& manifest() const { return manifest_; }
  // Throws when the component is absent.
  std::string bytes(const std::string& component) const {
    const auto& entry = manifest_.at("tensors").at(component);
    return data_.substr(entry.at("offset").get<std::size_t>(), entry.at("size").get<std::size_t>());
  }

 private:
  nlohmann::json manifest_;
  std::string data_;
};

}  // namespace moepack::test
