#include "convert/source/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <nlohmann/json.hpp>

#include "convert/source/gguf_config_families.h"
#include "convert/source/gguf_keys.h"
#include "formats/base/limits.h"
#include "formats/base/number_text.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

using Json = nlohmann::ordered_json;

// The model's own layers; no more than there are tensors, whatever the file claims.
Result<std::uint64_t> count_layers(const GgufKeys& keys) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t blocks, keys.number("block_count"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t extra, keys.number("nextn_predict_layers", 0));
  if (blocks <= extra) {
    return keys.error("block_count", "is " + std::to_string(blocks) + ", of which " +
                                         std::to_string(extra) + " predict further tokens");
  }
  if (blocks > keys.model().tensors().size()) {
    return keys.error("block_count", "is " + std::to_string(blocks) + ", but there are only " +
                                         std::to_string(keys.model().tensors().size()) +
                                         " tensors");
  }
  return blocks - extra;
}

Result<Json> layer_types(const GgufKeys& keys, std::uint64_t layers) {
  std::vector<bool> is_linear(layers);
  if (keys.has("attention.recurrent_layers")) {
    MOE_ASSIGN_OR_RETURN(auto list, keys.numbers("attention.recurrent_layers"));
    if (list.size() == 1) list.resize(layers, list.front());
    if (list.size() < layers) {
      return keys.error("attention.recurrent_layers", "lists " + std::to_string(list.size()) +
                                                          " layers of " + std::to_string(layers));
    }
    for (std::uint64_t l = 0; l < layers; ++l) is_linear[l] = list[l] != 0;
  } else {
    MOE_ASSIGN_OR_RETURN(const std::uint64_t interval, keys.number("full_attention_interval", 4));
    if (interval == 0) return keys.error("full_attention_interval", "is 0");
    for (std::uint64_t l = 0; l < layers; ++l) is_linear[l] = (l + 1) % interval != 0;
  }
  Json types = Json::array();
  for (bool linear : is_linear) types.push_back(linear ? "linear_attention" : "full_attention");
  return types;
}

// Without a type llama.cpp scales positions by a factor that is not 0 or 1.
Status check_rope_scaling(const GgufKeys& keys) {
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    if (!keys.has(key)) continue;
    MOE_ASSIGN_OR_RETURN(const double factor, keys.real(key));
    if (factor == 0 || factor == 1) continue;
    return unsupported(Where{.file = keys.file()}, "key " + std::string(key) + " is " +
                                                       std::to_string(factor) +
                                                       ", and scaled positions are not known here");
  }
  return keys.require_text("rope.scaling.type", "none");
}

Status add_attention(const GgufKeys& keys, Json& config) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t heads, keys.dimension("attention.head_count"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t kv_heads,
                       keys.dimension("attention.head_count_kv", heads));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t head_dim, keys.dimension("attention.key_length"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t value_dim,
                       keys.number("attention.value_length", head_dim));
  if (value_dim != head_dim) {
    return keys.error(
        "attention.value_length",
        "is " + std::to_string(value_dim) + ", attention.key_length " + std::to_string(head_dim));
  }
  MOE_ASSIGN_OR_RETURN(const std::uint64_t rotated,
                       keys.dimension("rope.dimension_count", head_dim));
  if (rotated % 2 != 0) return keys.error("rope.dimension_count", "is odd");
  MOE_RETURN_IF_ERROR(check_rope_scaling(keys));
  MOE_ASSIGN_OR_RETURN(const double theta, keys.real("rope.freq_base"));
  if (!(theta > 1)) return keys.error("rope.freq_base", "is not above 1");
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = kv_heads;
  config["head_dim"] = head_dim;
  Json rope{{"rope_type", "default"},
            {"rope_theta", shortest_decimal(static_cast<float>(theta))},
            {"partial_rotary_factor", gguf_rotary_factor(rotated, head_dim)}};
  if (keys.has("rope.dimension_sections")) {
    // Positions of text are the same in all sections; the list is for other programs.
    MOE_ASSIGN_OR_RETURN(std::vector<std::int64_t> sections,
                         keys.numbers("rope.dimension_sections"));
    const bool fits =
        sections.size() <= 4 && std::all_of(sections.begin(), sections.end(), [&](std::int64_t n) {
          return n >= 0 && static_cast<std::uint64_t>(n) <= rotated;
        });
    if (!fits) return keys.error("rope.dimension_sections", "is no list of up to four sizes");
    if (sections.size() > 3) sections.resize(3);
    rope["mrope_section"] = sections;
    rope["mrope_interleaved"] = true;
  }
  config["rope_parameters"] = std::move(rope);
  return Status::ok();
}

Status add_linear_attention(const GgufKeys& keys, Json& config) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t value_heads, keys.dimension("ssm.time_step_rank"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t inner, keys.dimension("ssm.inner_size"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t key_heads, keys.dimension("ssm.group_count"));
  if (value_heads % key_heads != 0) {
    return keys.error("ssm.time_step_rank", "is " + std::to_string(value_heads) +
                                                ", no multiple of ssm.group_count " +
                                                std::to_string(key_heads));
  }
  if (inner % value_heads != 0) {
    return keys.error("ssm.inner_size", "is " + std::to_string(inner) +
                                            ", no multiple of ssm.time_step_rank " +
                                            std::to_string(value_heads));
  }
  config["linear_num_key_heads"] = key_heads;
  config["linear_num_value_heads"] = value_heads;
  MOE_ASSIGN_OR_RETURN(config["linear_key_head_dim"], keys.dimension("ssm.state_size"));
  config["linear_value_head_dim"] = inner / value_heads;
  MOE_ASSIGN_OR_RETURN(config["linear_conv_kernel_dim"], keys.dimension("ssm.conv_kernel", 256));
  return Status::ok();
}

// The width of the shared expert, by its key or, where writers leave that out, by its tensor.
Result<std::uint64_t> shared_width(const GgufKeys& keys) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t width,
                       keys.number("expert_shared_feed_forward_length", 0));
  if (width != 0) return keys.dimension("expert_shared_feed_forward_length");
  const GgufTensor* gate = keys.model().find("blk.0.ffn_gate_shexp.weight");
  if (gate == nullptr || gate->info->shape.size() != 2) {
    return keys.dimension("expert_shared_feed_forward_length");  // its error
  }
  return gate->info->shape.front();
}

Status add_experts(const GgufKeys& keys, Json& config) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t experts,
                       keys.dimension("expert_count", kMaxLayerExperts));
  config["num_experts"] = experts;
  MOE_ASSIGN_OR_RETURN(config["num_experts_per_tok"], keys.dimension("expert_used_count", experts));
  MOE_ASSIGN_OR_RETURN(config["moe_intermediate_size"],
                       keys.dimension("expert_feed_forward_length"));
  MOE_ASSIGN_OR_RETURN(config["shared_expert_intermediate_size"], shared_width(keys));
  MOE_RETURN_IF_ERROR(keys.require_number("leading_dense_block_count", 0));
  MOE_RETURN_IF_ERROR(keys.require_number("expert_group_count", 1));
  MOE_RETURN_IF_ERROR(keys.require_number("expert_gating_func", 1));  // softmax
  if (!keys.has("expert_weights_scale")) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const double scale, keys.real("expert_weights_scale"));
  if (scale == 1 || scale == 0) return Status::ok();
  return unsupported(Where{.file = keys.file()},
                     "key expert_weights_scale is " + std::to_string(scale) +
                         ", which asks for a computation that is not known here");
}

// One id or a list, as config.json has them.
Status add_end_of_text(const GgufModel& model, std::uint64_t vocabulary, Json& config) {
  std::vector<std::uint64_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (!model.metadata().has(key)) continue;
    MOE_ASSIGN_OR_RETURN(const std::uint64_t id, model.metadata().number(key, vocabulary - 1));
    if (ids.empty() || ids.front() != id) ids.push_back(id);
  }
  if (ids.size() == 1) config["eos_token_id"] = ids.front();
  if (ids.size() > 1) config["eos_token_id"] = ids;
  return Status::ok();
}

Result<std::uint64_t> vocabulary_size(const GgufKeys& keys) {
  const GgufTensor* embedding = keys.model().find("token_embd.weight");
  if (embedding == nullptr) {
    return not_found(Where{.file = keys.file(), .tensor = "token_embd.weight"}, "is missing",
                     "the model is incomplete; download it again");
  }
  const std::vector<std::uint64_t>& shape = embedding->info->shape;
  if (shape.size() != 2) {
    return corrupt(embedding->where(), "shape " + shape_text(shape) + " is no matrix");
  }
  const GgufEntry* tokens = keys.model().metadata().find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->count > shape.front()) {
    return corrupt(Where{.file = keys.file(), .offset = tokens->offset},
                   "key tokenizer.ggml.tokens lists " + std::to_string(tokens->count) +
                       " tokens, but token_embd.weight has " + std::to_string(shape.front()) +
                       " rows");
  }
  return shape.front();
}

}  // namespace

Result<const Architecture*> gguf_architecture(const GgufModel& model) {
  MOE_ASSIGN_OR_RETURN(const std::string name, model.metadata().string("general.architecture"));
  const Architecture* names = find_gguf_architecture(name);
  if (names != nullptr) return names;
  return unsupported(Where{.file = model.parts().front().file().path()},
                     "architecture " + printable(name, 64) + " cannot be converted yet",
                     "known are: " + supported_gguf_architectures());
}

Result<std::string> gguf_config_text(const GgufModel& model, const Architecture& names) {
  const GgufKeys keys(model, names.gguf_architecture);
  Json config{{"architectures", {names.model_class}},
              {"model_type", names.text_model_type},
              {"hidden_act", "silu"}};
  MOE_ASSIGN_OR_RETURN(const std::uint64_t vocabulary, vocabulary_size(keys));
  config["vocab_size"] = vocabulary;
  MOE_ASSIGN_OR_RETURN(config["hidden_size"], keys.dimension("embedding_length"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t layers, count_layers(keys));
  config["num_hidden_layers"] = layers;
  MOE_ASSIGN_OR_RETURN(config["max_position_embeddings"],
                       keys.dimension("context_length", kMaxStatedPositions));
  MOE_ASSIGN_OR_RETURN(const double eps, keys.real("attention.layer_norm_rms_epsilon"));
  if (!(eps > 0 && eps < 1)) {
    return keys.error("attention.layer_norm_rms_epsilon", "is not between 0 and 1");
  }
  config["rms_norm_eps"] = shortest_decimal(static_cast<float>(eps));
  config["tie_word_embeddings"] = model.find("output.weight") == nullptr;
  if (names.norms == NormSource::kToldByConv1d) {
    MOE_ASSIGN_OR_RETURN(config["layer_types"], layer_types(keys, layers));
    MOE_RETURN_IF_ERROR(add_attention(keys, config));
    MOE_RETURN_IF_ERROR(add_linear_attention(keys, config));
    MOE_RETURN_IF_ERROR(add_experts(keys, config));
  } else {
    MOE_RETURN_IF_ERROR(add_gguf_family(keys, names, config));
  }
  MOE_RETURN_IF_ERROR(add_end_of_text(model, vocabulary, config));
  return config.dump(2, ' ', true) + "\n";
}

}  // namespace moepack
