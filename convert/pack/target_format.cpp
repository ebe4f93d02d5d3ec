#include "convert/pack/target_format.h"

#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/limits.h"

namespace moepack {
WeightFormat expert_target(const SourceForm& source, const ConvertOptions& options) {
  if (!options.expert_format.has_value()) {
    return source.is_decoded ? WeightFormat{.id = QFormatId::kBf16} : source.format;
  }
  WeightFormat target{.id = *options.expert_format};
  if (!is_affine(target)) return target;
  target.group_size = options.group_size;
  if (is_affine(source.format)) {
    target.scale_type = source.format.scale_type;
  } else if (source.format.id == QFormatId::kF16) {
    target.scale_type = DType::kF16;
  }
  return target;
}

WeightFormat resident_target(const ResidentRule& rule, const SourceForm& source,
                             const ConvertOptions& options) {
  if (rule.rounding == Rounding::kNever) return source.format;
  if (!options.resident_format.has_value()) {
    return source.is_decoded ? WeightFormat{.id = QFormatId::kBf16} : source.format;
  }
  QFormatId id = *options.resident_format;
  if (id == QFormatId::kBf16 || id == QFormatId::kF32) return {.id = id};
  if (rule.rounding == Rounding::kAtLeast8 && qformat_info(id).bits < 8) id = QFormatId::kQ8;
  const DType scale_type = is_affine(source.format)              ? source.format.scale_type
                           : source.format.id == QFormatId::kF16 ? DType::kF16
                                                                 : DType::kBf16;
  return {.id = id, .group_size = options.group_size, .scale_type = scale_type};
}

std::string fitting_groups(const ModelConfig& config, std::string_view remedy) {
  std::string text;
  for (std::uint64_t group : {32U, 64U, 128U}) {
    if (config.hidden_size % group != 0 || config.expert_width % group != 0) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(group);
  }
  return text.empty() ? "none; " + std::string(remedy) : text;
}

Status check_expert_count(const ModelConfig& config, const SourceNaming& naming) {
  const std::uint64_t experts = std::uint64_t{config.num_layers} * config.num_experts;
  if (experts <= kMaxModelExperts) return Status::ok();
  return unsupported(Where{.file = naming.place()},
                     naming.configured_by() + " gives " + std::to_string(experts) +
                         " experts in all layers, at most " + std::to_string(kMaxModelExperts) +
                         " are handled");
}

bool append_resident(ResidentTensor tensor, ResidentManifest& manifest) {
  tensor.rows = 1;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) tensor.rows *= tensor.shape[i];
  tensor.cols = tensor.shape.back();
  const auto bytes = matrix_bytes(tensor.format, tensor.rows, tensor.cols);
  if (!bytes.has_value()) return false;
  tensor.bytes = *bytes;
  std::uint64_t& end = manifest.data_size;
  for (Component c : stored_components(tensor.format)) {
    tensor.offsets[c] = end;
    end = align_up(end + tensor.bytes[c], kResidentAlignment);
  }
  manifest.tensors.push_back(std::move(tensor));
  return true;
}

}  // namespace moepack
