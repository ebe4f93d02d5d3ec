// A checkpoint of qwen3_moe with random weights: every layer has full attention, and nothing is
// recurrent.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"
#include "tests/support/safetensors_writer.h"

namespace moepack::test {

// Values of a matrix have the variance 1 / columns; those of a vector lie around 1.
inline WriterTensor random_tensor(const std::string& name, std::vector<std::uint64_t> shape,
                                  std::mt19937_64& random) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  const bool is_vector = shape.size() == 1;
  const double width = is_vector ? 0.1 : 1 / std::sqrt(static_cast<double>(shape.back()));
  std::normal_distribution<double> value(is_vector ? 1 : 0, width);
  std::string bytes(count * sizeof(std::uint16_t), '\0');
  for (std::uint64_t i = 0; i < count; ++i) {
    store_le(bytes.data() + i * sizeof(std::uint16_t),
             f32_to_bf16(static_cast<float>(value(random))));
  }
  return {name, DType::kBf16, std::move(shape), std::move(bytes)};
}

inline nlohmann::json attention_model_config() {
  std::ifstream in(std::filesystem::path(MOEPACK_SOURCE_DIR) /
                   "tests/fuzz/corpus/config/qwen3_moe.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config["vocab_size"] = 288;
  return config;
}

inline std::vector<WriterTensor> attention_model_tensors(const nlohmann::json& config) {
  const std::uint64_t hidden = config["hidden_size"];
  const std::uint64_t head = config["head_dim"];
  const std::uint64_t queries = head * config["num_attention_heads"].get<std::uint64_t>();
  const std::uint64_t keys = head * config["num_key_value_heads"].get<std::uint64_t>();
  const std::uint64_t width = config["moe_intermediate_size"];
  const std::uint64_t experts = config["num_local_experts"];
  const std::uint64_t vocabulary = config["vocab_size"];
  std::mt19937_64 random(1);
  std::vector<WriterTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
    tensors.push_back(random_tensor(name + ".weight", std::move(shape), random));
  };
  add("model.embed_tokens", {vocabulary, hidden});
  add("lm_head", {vocabulary, hidden});
  add("model.norm", {hidden});
  for (std::uint64_t i = 0; i < config["num_hidden_layers"].get<std::uint64_t>(); ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm", {hidden});
    add(layer + "post_attention_layernorm", {hidden});
    add(layer + "self_attn.q_proj", {queries, hidden});
    add(layer + "self_attn.k_proj", {keys, hidden});
    add(layer + "self_attn.v_proj", {keys, hidden});
    add(layer + "self_attn.o_proj", {hidden, queries});
    add(layer + "self_attn.q_norm", {head});
    add(layer + "self_attn.k_norm", {head});
    add(layer + "mlp.gate", {experts, hidden});
    for (std::uint64_t e = 0; e < experts; ++e) {
      const std::string expert = layer + "mlp.experts." + std::to_string(e) + ".";
      add(expert + "gate_proj", {width, hidden});
      add(expert + "up_proj", {width, hidden});
      add(expert + "down_proj", {hidden, width});
    }
  }
  return tensors;
}

// Creates `directory` and writes config.json and model.safetensors: 288 ids, two layers.
inline void write_attention_model(const std::filesystem::path& directory) {
  const nlohmann::json config = attention_model_config();
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", config.dump());
  write_safetensors(directory / "model.safetensors", attention_model_tensors(config));
}

// The same in FP8, one scale for each 128 x 128 weights: every expert's matrices are whole blocks.
inline void write_fp8_attention_model(const std::filesystem::path& directory) {
  nlohmann::json config = attention_model_config();
  config["moe_intermediate_size"] = 128;
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  std::vector<WriterTensor> tensors = attention_model_tensors(config);
  std::mt19937_64 random(2);
  std::vector<WriterTensor> scales;
  for (WriterTensor& tensor : tensors) {
    if (tensor.name.find(".experts.") == std::string::npos) continue;
    const std::uint64_t count = tensor.shape[0] * tensor.shape[1];
    tensor.dtype = DType::kF8E4M3;
    tensor.bytes.clear();
    for (std::uint64_t i = 0; i < count; ++i) {  // all codes but those of NaN
      tensor.bytes.push_back(static_cast<char>(random() % 2 * 128 + random() % 127));
    }
    WriterTensor scale{tensor.name + "_scale_inv", DType::kF32, {1, 1}, std::string(4, '\0')};
    store_le(scale.bytes.data(), 5e-4F * (1 + static_cast<float>(random() % 1000) / 1000));
    scales.push_back(std::move(scale));
  }
  tensors.insert(tensors.end(), scales.begin(), scales.end());
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", config.dump());
  write_safetensors(directory / "model.safetensors", std::move(tensors));
}

}  // namespace moepack::test
