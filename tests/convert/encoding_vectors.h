// The matrices of tests/golden/encodings/vectors.json.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/config/model_config.h"
#include "tests/convert/encoding_support.h"

namespace moepack::test {

struct EncodingVector {
  std::string name;
  nlohmann::json config;
  std::vector<std::uint64_t> shape;
  std::vector<WriterTensor> tensors;
  std::string stored;         // the format that keeps the codes, or "f32"
  std::vector<float> values;  // [shape]
};

inline std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

inline std::vector<EncodingVector> encoding_vectors() {
  std::ifstream in(std::filesystem::path(MOEPACK_SOURCE_DIR) /
                   "tests/golden/encodings/vectors.json");
  std::vector<EncodingVector> all;
  for (const nlohmann::json& entry : nlohmann::json::parse(in)) {
    EncodingVector one{.name = entry["name"],
                       .config = entry["config"],
                       .shape = entry["shape"],
                       .tensors = {},
                       .stored = entry["stored"],
                       .values = {}};
    for (const nlohmann::json& tensor : entry["tensors"]) {
      one.tensors.push_back({tensor["name"], *dtype_from_name(tensor["dtype"].get<std::string>()),
                             tensor["shape"].get<std::vector<std::uint64_t>>(),
                             bytes_of_hex(tensor["hex"])});
    }
    const std::string bytes = bytes_of_hex(entry["f32"]);
    one.values.resize(bytes.size() / 4);
    std::memcpy(one.values.data(), bytes.data(), bytes.size());
    all.push_back(std::move(one));
  }
  return all;
}

// What recognise_module makes of tensors and configuration.
inline Result<ModuleForm> recognise_vector(const EncodingVector& vector, const LoneModule& module) {
  MOE_ASSIGN_OR_RETURN(const ParsedConfig parsed,
                       parse_quantization(vector.config.dump(), "config.json"));
  return module.recognise(vector.shape, parsed.source_quantization);
}

}  // namespace moepack::test
