#include "convert/source/gguf_experts.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "convert/source/expert_name.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

enum class Stack : std::uint8_t { kGate, kUp, kDown, kGateUp };

struct StackName {
  std::string_view name;
  Stack stack;
};
constexpr std::array<StackName, 4> kStacks{{{"ffn_gate_exps", Stack::kGate},
                                            {"ffn_up_exps", Stack::kUp},
                                            {"ffn_down_exps", Stack::kDown},
                                            {"ffn_gate_up_exps", Stack::kGateUp}}};
// With the number of dimensions, the experts' included.
struct PartName {
  std::string_view suffix;
  std::size_t dimensions;
};
constexpr std::array<PartName, 3> kParts{{{".weight", 3}, {".bias", 2}, {".scale", 1}}};

struct Found {
  std::uint32_t layer = 0;
  Stack stack = Stack::kGate;
  PartName part = kParts[0];
};

// "blk.3.ffn_gate_exps.weight"; nullopt for any other name.
std::optional<Found> parse_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const std::size_t dot = name.find('.');
  constexpr std::uint32_t kMaxLayers = 1'000'000;
  const auto layer = dot == std::string_view::npos ? std::optional<std::uint32_t>()
                                                   : parse_index(name.substr(0, dot), kMaxLayers);
  if (!layer.has_value()) return std::nullopt;
  name.remove_prefix(dot + 1);
  for (const StackName& stack : kStacks) {
    for (const PartName& part : kParts) {
      if (name.starts_with(stack.name) && name.substr(stack.name.size()) == part.suffix) {
        return Found{.layer = *layer, .stack = stack.stack, .part = part};
      }
    }
  }
  return std::nullopt;
}

Status misfit(const GgufTensor& tensor, const std::string& what) {
  return corrupt(tensor.where(), what, "the file is not of a model known here, or it is damaged");
}

std::string component_name(Projection projection, const PartName& part) {
  return std::string(projection_name(projection)) + std::string(part.suffix);
}

// Both halves of a fused tensor, or the tensor as it is.
Status add_components(const GgufTensor& tensor, const Found& found, GgufExpertLayer& layer) {
  const std::vector<std::uint64_t>& shape = tensor.info->shape;
  if (shape.size() != found.part.dimensions) {
    return misfit(tensor, "has shape " + shape_text(shape) + ", expected are " +
                              std::to_string(found.part.dimensions) + " dimensions");
  }
  if (layer.num_experts == 0) layer.num_experts = shape.front();
  if (layer.num_experts != shape.front()) {
    return misfit(tensor, "holds " + std::to_string(shape.front()) +
                              " experts, another tensor of " + "its layer " +
                              std::to_string(layer.num_experts));
  }
  GgufExpertComponent whole{.name = {},
                            .tensor = &tensor,
                            .begin = 0,
                            .stride = tensor.info->size / layer.num_experts,
                            .expert_size = tensor.info->size / layer.num_experts,
                            .shape = shape};
  if (found.stack != Stack::kGateUp || found.part.dimensions == 1) {
    constexpr std::array<Projection, 4> kOf{Projection::kGate, Projection::kUp, Projection::kDown,
                                            Projection::kGate};
    whole.name = component_name(kOf[static_cast<std::size_t>(found.stack)], found.part);
    layer.components.push_back(whole);
    if (found.stack != Stack::kGateUp) return Status::ok();
    whole.name = component_name(Projection::kUp, found.part);  // one factor for both
    layer.components.push_back(std::move(whole));
    return Status::ok();
  }
  if (shape[1] % 2 != 0) {
    return misfit(tensor, "has " + std::to_string(shape[1]) +
                              " outputs, an odd number, for gate and up together");
  }
  whole.shape[1] /= 2;
  whole.expert_size /= 2;  // whole rows: the halves have the same number
  for (Projection p : {Projection::kGate, Projection::kUp}) {
    whole.name = component_name(p, found.part);
    layer.components.push_back(whole);
    whole.begin += whole.expert_size;
  }
  return Status::ok();
}

std::size_t rank_of(std::string_view component) {
  std::size_t rank = 0;
  for (Projection p : kAllProjections) {
    for (const PartName& part : kParts) {
      if (component == component_name(p, part)) return rank;
      ++rank;
    }
  }
  return rank;
}

Status missing_projection(const GgufModel& model, std::uint32_t layer, const std::string& name) {
  return corrupt({.file = model.parts().front().file().path()},
                 "blk." + std::to_string(layer) + " has experts without " + name,
                 "the file is incomplete");
}

Status check_layer(const GgufModel& model, GgufExpertLayer& layer,
                   std::optional<std::uint64_t> expected_experts) {
  auto& components = layer.components;
  std::stable_sort(components.begin(), components.end(),
                   [](const auto& a, const auto& b) { return rank_of(a.name) < rank_of(b.name); });
  for (std::size_t i = 1; i < components.size(); ++i) {
    if (components[i].name != components[i - 1].name) continue;
    return misfit(*components[i].tensor, "stands for the same experts as " +
                                             printable(components[i - 1].tensor->info->name) +
                                             ": fused and separate");
  }
  for (Projection p : kAllProjections) {
    const std::string name = component_name(p, kParts[0]);
    const bool there = std::any_of(components.begin(), components.end(),
                                   [&](const auto& c) { return c.name == name; });
    if (there) continue;
    return missing_projection(model, layer.layer, name);
  }
  if (expected_experts.has_value() && *expected_experts != layer.num_experts) {
    return misfit(*components.front().tensor, "holds " + std::to_string(layer.num_experts) +
                                                  " experts, the model has " +
                                                  std::to_string(*expected_experts));
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<GgufExpertLayer>> find_gguf_experts(const GgufModel& model) {
  std::map<std::uint32_t, GgufExpertLayer> layers;
  for (const GgufTensor& tensor : model.tensors()) {
    const auto found = parse_name(tensor.info->name);
    if (!found.has_value()) continue;
    GgufExpertLayer& layer = layers[found->layer];
    layer.layer = found->layer;
    MOE_RETURN_IF_ERROR(add_components(tensor, *found, layer));
  }
  std::optional<std::uint64_t> experts;
  if (model.metadata().has("general.architecture")) {
    MOE_ASSIGN_OR_RETURN(const std::string name, model.metadata().string("general.architecture"));
    const std::string key = name + ".expert_count";
    if (model.metadata().has(key)) {
      MOE_ASSIGN_OR_RETURN(experts, model.metadata().number(key));
    }
  }
  std::vector<GgufExpertLayer> list;
  for (auto& [number, layer] : layers) {
    if (!experts.has_value()) experts = layer.num_experts;
    MOE_RETURN_IF_ERROR(check_layer(model, layer, experts));
    list.push_back(std::move(layer));
  }
  return list;
}

}  // namespace moepack
