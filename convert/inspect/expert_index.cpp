#include "convert/inspect/expert_index.h"

#include <array>

#include "convert/inspect/gguf_expert_index.h"
#include "convert/job/text_sink.h"
#include "convert/pack/plan.h"
#include "convert/source/path_kind.h"
#include "formats/base/json_fields.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

std::uint64_t file_offset(const TensorSlice& slice) { return slice.tensor.offset() + slice.begin; }

std::string file_name(const TensorSlice& slice) {
  return std::filesystem::path(slice.tensor.file().path()).filename().string();
}

// `"file": …, "abs_offset": …`
std::string place_members(const TensorSlice& slice) {
  return "\"file\": " + json_quote(file_name(slice)) +
         ", \"abs_offset\": " + std::to_string(file_offset(slice));
}

// One component of one projection in one layer, over all experts.
class ComponentIndex {
 public:
  ComponentIndex(const ExpertSource& source, std::uint32_t layer, std::uint32_t num_experts,
                 Projection projection, Component part)
      : source_(source),
        layer_(layer),
        num_experts_(num_experts),
        projection_(projection),
        part_(part) {}

  bool any() const {
    for (std::uint32_t e = 0; e < num_experts_; ++e) {
      if (slice(e).tensor) return true;
    }
    return false;
  }

  // The experts lie in one tensor at equal distances.
  bool is_stacked() const {
    const TensorSlice& first = slice(0);
    if (!first.tensor || first.tensor.shape().size() != 3) return false;
    const std::uint64_t stride = first.tensor.size() / num_experts_;
    for (std::uint32_t e = 0; e < num_experts_; ++e) {
      const TensorSlice& other = slice(e);
      if (other.tensor != first.tensor || other.bytes != first.bytes ||
          other.begin != first.begin + e * stride) {
        return false;
      }
    }
    return true;
  }

  std::string stacked_entry() const {
    const TensorSlice& first = slice(0);
    std::vector<std::uint64_t> shape = matrix_shape(0);
    shape.insert(shape.begin(), num_experts_);
    const std::uint64_t total = first.tensor.size();
    return "{" + place_members(first) +
           ", \"expert_stride\": " + std::to_string(total / num_experts_) +
           ", \"expert_size\": " + std::to_string(first.bytes) +
           ", \"total_size\": " + std::to_string(total) + ", \"shape\": " + shape_text(shape) +
           ", \"dtype\": " + json_quote(dtype_name(first.tensor.dtype())) + "}";
  }

  // Sizes, shape and type are those of all experts, or stand with each where they differ.
  Status write_single(TextSink& text) const {
    bool uniform = true;
    for (std::uint32_t e = 0; e < num_experts_; ++e) {
      uniform = uniform && slice(e).tensor && form_members(e) == form_members(0);
    }
    MOE_RETURN_IF_ERROR(
        text.add("{" + (uniform ? form_members(0) + ", " : std::string()) + "\"experts\": ["));
    for (std::uint32_t e = 0; e < num_experts_; ++e) {
      std::string entry = e == 0 ? "\n      " : ",\n      ";
      if (!slice(e).tensor) {
        entry += "null";
      } else {
        entry += "{" + place_members(slice(e)) + (uniform ? "" : ", " + form_members(e)) + "}";
      }
      MOE_RETURN_IF_ERROR(text.add(entry));
    }
    return text.add("]}");
  }

 private:
  const SourceMatrix& matrix(std::uint32_t expert) const {
    return source_.of(layer_, expert, projection_);
  }
  const TensorSlice& slice(std::uint32_t expert) const { return matrix(expert).slices[part_]; }
  // As stored: codes count 32-bit words.
  std::vector<std::uint64_t> matrix_shape(std::uint32_t expert) const {
    const SourceMatrix& m = matrix(expert);
    const std::array<std::uint64_t, 2> logical{m.rows, m.cols};
    return component_shape(m.format, part_, logical);
  }
  std::string form_members(std::uint32_t expert) const {
    return "\"expert_size\": " + std::to_string(slice(expert).bytes) +
           ", \"shape\": " + shape_text(matrix_shape(expert)) +
           ", \"dtype\": " + json_quote(dtype_name(slice(expert).tensor.dtype()));
  }

  const ExpertSource& source_;
  std::uint32_t layer_;
  std::uint32_t num_experts_;
  Projection projection_;
  Component part_;
};

Status write_layer(const ConvertPlan& plan, std::uint32_t layer, TextSink& text) {
  // The first that has experts begins the list.
  bool is_first = true;
  for (std::uint32_t l = 0; l < layer; ++l) is_first = is_first && plan.pack.experts_of(l) == 0;
  MOE_RETURN_IF_ERROR(
      text.add((is_first ? "\n  " : ",\n  ") + json_quote(std::to_string(layer)) + ": {"));
  std::string separator = "\n    ";
  for (Projection p : kAllProjections) {
    for (Component part : kAllComponents) {
      const ComponentIndex component(plan.experts, layer, plan.pack.num_experts, p, part);
      if (!component.any()) continue;
      const std::string key = std::string(projection_name(p)) + std::string(component_suffix(part));
      MOE_RETURN_IF_ERROR(text.add(separator + json_quote(key) + ": "));
      MOE_RETURN_IF_ERROR(component.is_stacked() ? text.add(component.stacked_entry())
                                                 : component.write_single(text));
      separator = ",\n    ";
    }
  }
  return text.add("}");
}

// Readers of the index take bytes as they are.
Status check_readable_in_place(const ConvertPlan& plan) {
  for (std::uint32_t layer = 0; layer < plan.pack.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < plan.pack.experts_of(layer); ++e) {
      for (Projection p : kAllProjections) {
        const SourceMatrix& matrix = plan.experts.of(layer, e, p);
        if (matrix.encoded == nullptr && matrix.runs == nullptr) continue;
        if (matrix.encoded == nullptr || matrix.encoded->encoding->only_moves) {
          return unsupported(matrix.slices.codes().tensor.where(),
                             "holds the values of its experts in another order: an index of its "
                             "bytes is of no use",
                             "convert the model and use its layout.json");
        }
        return unsupported(matrix.slices.codes().tensor.where(),
                           "is in " + std::string(matrix.encoded->encoding->name) +
                               ", which must be decoded: an index of its bytes is of no use",
                           "convert the model and use its layout.json");
      }
    }
  }
  return Status::ok();
}

}  // namespace

Result<ExpertIndexSummary> write_expert_index(const std::filesystem::path& source,
                                              const ByteSink& sink) {
  if (has_gguf_name(source)) return write_gguf_expert_index(source, sink);
  MOE_ASSIGN_OR_RETURN(const ModelSource model, ModelSource::open(source));
  MOE_ASSIGN_OR_RETURN(const ConvertPlan plan, make_plan(model, ConvertOptions{}));
  MOE_RETURN_IF_ERROR(check_readable_in_place(plan));
  ExpertIndexSummary summary{.directory = model.path().string(),
                             .num_layers = plan.pack.num_layers,
                             .num_experts = plan.pack.num_experts};
  TextSink text(sink);
  MOE_RETURN_IF_ERROR(
      text.add("{\"model_path\": " + json_quote(summary.directory) + ", \"expert_reads\": {"));
  for (std::uint32_t layer = 0; layer < summary.num_layers; ++layer) {
    if (plan.pack.experts_of(layer) == 0) continue;
    MOE_RETURN_IF_ERROR(write_layer(plan, layer, text));
    for (std::uint32_t e = 0; e < summary.num_experts; ++e) {
      summary.expert_bytes += plan.experts.bytes(layer, e);
    }
  }
  MOE_RETURN_IF_ERROR(text.add("\n}}\n"));
  MOE_RETURN_IF_ERROR(text.flush());
  summary.index_bytes = text.bytes();
  return summary;
}

}  // namespace moepack
