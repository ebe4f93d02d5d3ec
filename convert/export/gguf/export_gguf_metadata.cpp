#include "convert/export/gguf/export_gguf_metadata.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convert/pack/engine_config.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/config/companion_files.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kQuantizationVersion = 2;  // of ggml's blocks as they are now

// llama.cpp's llama_ftype of a file that is mostly of one type. Advisory: readers go by the
// tensors.
struct FileTypeRow {
  QFormatId format;
  std::uint32_t file_type;
};
constexpr std::array<FileTypeRow, 28> kFileTypes{{
    {QFormatId::kF32, 0},     {QFormatId::kF16, 1},    {QFormatId::kQ40, 2},
    {QFormatId::kQ41, 3},     {QFormatId::kQ80, 7},    {QFormatId::kQ50, 8},
    {QFormatId::kQ51, 9},     {QFormatId::kQ2K, 10},   {QFormatId::kQ3K, 12},
    {QFormatId::kQ4K, 15},    {QFormatId::kQ5K, 17},   {QFormatId::kQ6K, 18},
    {QFormatId::kIq2Xxs, 19}, {QFormatId::kIq2Xs, 20}, {QFormatId::kIq3Xxs, 23},
    {QFormatId::kIq1S, 24},   {QFormatId::kIq4Nl, 25}, {QFormatId::kIq3S, 26},
    {QFormatId::kIq2S, 28},   {QFormatId::kIq4Xs, 30}, {QFormatId::kIq1M, 31},
    {QFormatId::kBf16, 32},   {QFormatId::kTq10, 36},  {QFormatId::kTq20, 37},
    {QFormatId::kMxfp4, 38},  {QFormatId::kNvfp4, 39}, {QFormatId::kQ10, 40},
    {QFormatId::kQ20, 41},
}};

std::uint64_t count_values(const GgufOutputTensor& tensor) {
  return tensor.size / tensor.type.block_bytes * tensor.type.block_values;
}

// nullopt: no number stands for what most weights are in.
std::optional<std::uint32_t> file_type(std::span<const GgufOutputTensor> tensors) {
  std::map<std::uint32_t, std::uint64_t> values;  // by ggml's type
  for (const GgufOutputTensor& tensor : tensors) values[tensor.type.id] += count_values(tensor);
  const auto most = std::max_element(values.begin(), values.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  if (most == values.end()) return std::nullopt;
  const auto type = find_ggml_type(most->first);
  for (const FileTypeRow& row : kFileTypes) {
    if (type.has_value() && type->format == row.format) return row.file_type;
  }
  return std::nullopt;
}

// The pairs that get their position from each of the three axes when they are dealt in turn.
std::vector<std::int32_t> dealt_sections(std::int32_t pairs) {
  return {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
}

// Whether no pair would take the fourth position, which is 0 for text: pair p stands in axis p % 3
// as long as p is below three times that axis's section, and the pairs of all sections repeat
// (ggml's interleaved multi-axis rotation).
bool fits_text(const std::vector<std::int32_t>& sections, std::int32_t pairs) {
  const std::int32_t sum = std::accumulate(sections.begin(), sections.end(), 0);
  if (sum <= 0) return false;
  for (std::int32_t pair = 0; pair < pairs; ++pair) {
    const std::int32_t at = pair % sum;
    if (at >= 3 * sections[static_cast<std::size_t>(at % 3)]) return false;
  }
  return true;
}

// The list of config.json where it has one that does text justice.
std::vector<std::int32_t> rope_sections(const nlohmann::json& config, const ModelConfig& model) {
  const auto pairs = static_cast<std::int32_t>(model.rotary_dim / 2);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.contains(key) || !config[key].is_object()) continue;
    const nlohmann::json& rope = config[key];
    if (!rope.contains("mrope_section") || !rope["mrope_section"].is_array()) continue;
    std::vector<std::int32_t> sections;
    for (const nlohmann::json& n : rope["mrope_section"]) {
      if (!n.is_number_unsigned() || n.get<std::uint64_t>() > model.rotary_dim) break;
      sections.push_back(n.get<std::int32_t>());
    }
    if (sections.size() != rope["mrope_section"].size() || sections.size() > 4) continue;
    sections.resize(4, 0);
    if (fits_text(sections, pairs)) return sections;
  }
  return dealt_sections(pairs);
}

// Keys of one architecture. The first error is kept.
class Keys {
 public:
  Keys(const Architecture& names, GgufHead& head)
      : prefix_(std::string(names.gguf_architecture) + "."), head_(head) {}

  void number(std::string_view key, std::uint64_t value) {
    keep(head_.add(prefix_ + std::string(key), static_cast<std::uint32_t>(value)));
  }
  void real(std::string_view key, double value) {
    keep(head_.add(prefix_ + std::string(key), static_cast<float>(value)));
  }
  template <typename List>
  void list(std::string_view key, const List& values) {
    keep(head_.add_list(prefix_ + std::string(key), values));
  }
  Status status() const { return status_; }

 private:
  void keep(const Status& status) {
    if (status_.is_ok()) status_ = status;
  }
  std::string prefix_;
  GgufHead& head_;
  Status status_;
};

void add_dimensions(const ModelConfig& c, Keys& keys) {
  keys.number("block_count", c.num_layers);
  keys.number("context_length", c.max_position_embeddings);
  keys.number("embedding_length", c.hidden_size);
  keys.number("attention.head_count", c.num_heads);
  keys.number("attention.head_count_kv", c.num_kv_heads);
  keys.number("attention.key_length", c.head_dim);
  keys.number("attention.value_length", c.head_dim);
  keys.real("attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  keys.real("rope.freq_base", c.rope_theta);
  keys.number("rope.dimension_count", c.rotary_dim);
  keys.number("expert_count", c.num_experts);
  keys.number("expert_used_count", c.experts_per_token);
  keys.number("expert_feed_forward_length", c.expert_width);
  keys.number("expert_shared_feed_forward_length", c.shared_expert_width);
  keys.number("ssm.conv_kernel", c.linear_conv_taps);
  keys.number("ssm.state_size", c.linear_key_dim);
  keys.number("ssm.group_count", c.linear_key_heads);
  keys.number("ssm.time_step_rank", c.linear_value_heads);
  keys.number("ssm.inner_size", std::uint64_t{c.linear_value_heads} * c.linear_value_dim);
}

void add_layer_types(const ModelConfig& config, Keys& keys) {
  const std::uint32_t interval = attention_interval(config);
  if (interval != 0) return keys.number("full_attention_interval", interval);
  std::vector<bool> is_linear;
  for (const LayerSpec& layer : config.layers) {
    is_linear.push_back(layer_type(layer) == LayerType::kLinearAttention);
  }
  keys.list("attention.recurrent_layers", is_linear);
}

Status check_computable(const ModelDir& model) {
  const ModelConfig& c = model.config;
  const std::string file = (model.path / kConfigName).string();
  if (c.linear_key_dim == c.linear_value_dim) return Status::ok();
  return unsupported(Where{.file = file},
                     "linear_key_head_dim is " + std::to_string(c.linear_key_dim) +
                         ", linear_value_head_dim " + std::to_string(c.linear_value_dim) +
                         "; llama.cpp knows one size for both",
                     "this model has no GGUF form");
}

}  // namespace

Status add_model_keys(const ModelDir& model, const Architecture& names, GgufHead& head) {
  MOE_RETURN_IF_ERROR(check_computable(model));
  const fs::path path = model.path / "config.json";
  MOE_ASSIGN_OR_RETURN(const std::string text,
                       read_text_file(path, companion_max_bytes(kConfigName)));
  const std::string file = path.string();
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  const bool is_nested = json.contains("text_config") && json["text_config"].is_object();
  MOE_RETURN_IF_ERROR(head.add("general.architecture", names.gguf_architecture));
  MOE_RETURN_IF_ERROR(head.add("general.type", "model"));
  MOE_RETURN_IF_ERROR(head.add("general.name", std::string_view(model.residents.model)));
  if (const auto number = file_type(head.tensors()); number.has_value()) {
    MOE_RETURN_IF_ERROR(head.add("general.file_type", *number));
  }
  MOE_RETURN_IF_ERROR(head.add("general.quantization_version", kQuantizationVersion));
  Keys keys(names, head);
  add_dimensions(model.config, keys);
  add_layer_types(model.config, keys);
  if (names.gguf_has_rope_sections) {
    const std::vector<std::int32_t> sections =
        rope_sections(is_nested ? json["text_config"] : json, model.config);
    keys.list("rope.dimension_sections", std::span(sections));
  }
  return keys.status();
}

}  // namespace moepack
