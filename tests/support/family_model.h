// Checkpoints of any family with random weights, made of the family's own table of modules: names
// and shapes are those that its converter asks for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/config/architecture.h"
#include "formats/config/model_config.h"
#include "tests/support/attention_model.h"

namespace moepack::test {

// The configuration of the fuzzers' corpus with this model_type.
inline nlohmann::json family_config(const std::string& model_type) {
  std::ifstream in(std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/fuzz/corpus/config" /
                   (model_type + ".json"));
  nlohmann::json config = nlohmann::json::parse(in);
  config["vocab_size"] = 288;
  return config;
}

class FamilyTensors {
 public:
  FamilyTensors(const ModelConfig& config, const Architecture& family)
      : config_(config), family_(family) {
    for (const ResidentRule& rule : family.residents) {
      if (is_fused(rule.role)) continue;
      if (rule.role == ModuleRole::kOutputHead && config.tie_word_embeddings) continue;
      add_in_layers(rule);
    }
    for (const FusedRule& fused : family.fused) {
      for (std::uint32_t l = 0; l < config.num_layers; ++l) {
        add_values("model.layers." + std::to_string(l) + "." + std::string(fused.name),
                   fused.shape(config));
      }
    }
    for (std::uint32_t l = 0; l < config.num_layers; ++l) {
      if (has_experts(config.layers[l])) add_experts(l);
    }
  }
  std::vector<WriterTensor> take() { return std::move(tensors_); }

 private:
  bool is_fused(ModuleRole role) const {
    for (const FusedRule& fused : family_.fused) {
      if (fused.parts[0].role == role || fused.parts[1].role == role) return true;
    }
    return false;
  }
  void add_in_layers(const ResidentRule& rule) {
    const auto add = [&](std::uint32_t layer) {
      if (!exists_in(rule, config_, layer)) return;
      const std::string module = resident_module(rule, layer);
      if (rule.has_weight_suffix) {
        tensors_.push_back(
            random_tensor(module + ".weight", module_shape(rule, config_, layer), random_));
      } else {
        add_values(module, module_shape(rule, config_, layer));
      }
    };
    if (rule.scope == LayerScope::kModel) return add(0);
    for (std::uint32_t l = 0; l < config_.num_layers; ++l) {
      if (applies_to_layer(rule, config_, l)) add(l);
    }
  }
  // Biases, corrections, sinks: about 0, and large enough to show.
  void add_values(const std::string& name, std::vector<std::uint64_t> shape) {
    std::uint64_t count = 1;
    for (const std::uint64_t size : shape) count *= size;
    std::normal_distribution<float> value(0, 0.5F);
    std::string bytes(count * 2, '\0');
    for (std::uint64_t i = 0; i < count; ++i) {
      store_le(bytes.data() + 2 * i, f32_to_bf16(value(random_)));
    }
    tensors_.push_back({name, DType::kBf16, std::move(shape), std::move(bytes)});
  }
  void add_experts(std::uint32_t layer) {
    const ExpertNames& names = *family_.experts;
    const std::string folder =
        "model.layers." + std::to_string(layer) + "." + std::string(names.folder);
    const std::uint64_t width = config_.expert_width;
    const std::uint64_t hidden = config_.hidden_size;
    const auto name_of = [&](ExpertMatrix m) {
      return std::string(names.matrices[static_cast<std::size_t>(m)]);
    };
    if (names.is_transposed) {
      const std::uint64_t experts = config_.num_experts;
      tensors_.push_back(random_tensor(folder + name_of(ExpertMatrix::kGateUp),
                                       {experts, hidden, 2 * width}, random_));
      tensors_.push_back(
          random_tensor(folder + name_of(ExpertMatrix::kDown), {experts, width, hidden}, random_));
      return;
    }
    for (std::uint32_t e = 0; e < config_.num_experts; ++e) {
      const std::string expert = folder + std::to_string(e) + ".";
      for (const ExpertMatrix m : {ExpertMatrix::kGate, ExpertMatrix::kUp}) {
        tensors_.push_back(
            random_tensor(expert + name_of(m) + ".weight", {width, hidden}, random_));
      }
      tensors_.push_back(random_tensor(expert + name_of(ExpertMatrix::kDown) + ".weight",
                                       {hidden, width}, random_));
    }
  }

  const ModelConfig& config_;
  const Architecture& family_;
  std::mt19937_64 random_{3};
  std::vector<WriterTensor> tensors_;
};

// Creates `directory` and writes config.json and model.safetensors.
inline void write_family_model(const std::filesystem::path& directory,
                               const nlohmann::json& config) {
  const auto parsed = parse_model_config(config.dump(), "config.json");
  if (!parsed.is_ok()) throw std::runtime_error(parsed.status().message());
  const ModelConfig& model = parsed.value().model;
  const auto family = architecture_of(model);
  if (!family.is_ok()) throw std::runtime_error(family.status().message());
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", config.dump());
  write_safetensors(directory / "model.safetensors", FamilyTensors(model, *family.value()).take());
}

}  // namespace moepack::test
