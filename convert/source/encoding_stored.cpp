// The encodings whose bytes are those of a stored format: plain floats and ggml's blocks, and MLX's
// affine codes, of which width and group follow from the shapes.
#include <algorithm>
#include <array>

#include "convert/source/source_encoding.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

bool detects_plain(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return module.codes().format().has_value();
}

Status check_plain(std::span<const std::uint64_t> shape, const SourceQuantization& /*declared*/,
                   ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  for (Component c : kAllComponents) {
    if (c == Component::kCodes || !form.tensors[c]) continue;
    return corrupt(form.tensors[c].where(),
                   "belongs to a weight of dtype " + codes.type_name() + ", which needs none");
  }
  const auto found = codes.shape();
  const bool fits = codes.is_gguf()
                        ? same_but_for_ones(found, shape)
                        : std::equal(found.begin(), found.end(), shape.begin(), shape.end());
  if (!fits) return source_shape_error(codes, shape);
  form.format = *codes.format();
  return Status::ok();
}

// Other modes of MLX have scales of one byte.
bool detects_affine(const SourceModule& module, const SourceQuantization& /*declared*/) {
  const SourceTensor& scales = module[Component::kScales];
  return module.codes().dtype() == DType::kU32 && (!scales || scales.dtype() != DType::kU8);
}

// The width of codes, from the words of a row.
Result<QFormatId> affine_width(const SourceTensor& codes, std::uint64_t inputs) {
  const std::uint64_t words = codes.shape().back();
  const std::uint64_t bits = words <= inputs ? words * 32 / inputs : 0;
  const auto id = affine_qformat(static_cast<std::uint32_t>(bits));
  if (id.has_value() && bits * inputs == words * 32) return *id;
  return corrupt(codes.where(), std::to_string(words) +
                                    " words a row hold no whole code width for the " +
                                    std::to_string(inputs) + " inputs that config.json gives");
}

// The group, from the scales of a row.
Result<std::uint32_t> affine_group(const SourceTensor& scales, std::uint64_t inputs) {
  const std::uint64_t groups = scales.shape().back();
  const std::uint64_t group = groups == 0 ? 0 : inputs / groups;
  if (group * groups == inputs && group <= 128 &&
      is_valid_group_size(static_cast<std::uint32_t>(group))) {
    return static_cast<std::uint32_t>(group);
  }
  return corrupt(scales.where(), std::to_string(groups) +
                                     " scales a row are no groups of 32, 64 or 128 of the " +
                                     std::to_string(inputs) + " inputs that config.json gives");
}

Status check_affine(std::span<const std::uint64_t> shape, const SourceQuantization& /*declared*/,
                    ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  for (Component c : {Component::kScales, Component::kBiases}) {
    if (form.tensors[c]) continue;
    return not_found(
        codes.where(),
        "holds packed codes, but its " + std::string(component_suffix(c)) + " is missing",
        "the checkpoint is incomplete or of another quantization mode than affine");
  }
  const SourceTensor& scales = form.tensors[Component::kScales];
  const SourceTensor& biases = form.tensors[Component::kBiases];
  if (!same_outer_shape(codes, shape)) return source_shape_error(codes, shape);
  MOE_ASSIGN_OR_RETURN(form.format.id, affine_width(codes, shape.back()));
  if (!same_outer_shape(scales, shape)) return source_shape_error(scales, shape);
  MOE_ASSIGN_OR_RETURN(form.format.group_size, affine_group(scales, shape.back()));
  if (scales.dtype() != DType::kBf16 && scales.dtype() != DType::kF16) {
    return unsupported(scales.where(), "scales of dtype " + scales.type_name() +
                                           " cannot be converted, only BF16 and F16");
  }
  form.format.scale_type = scales.dtype();
  const bool same_shape = std::equal(biases.shape().begin(), biases.shape().end(),
                                     scales.shape().begin(), scales.shape().end());
  if (same_shape && biases.dtype() == scales.dtype()) return Status::ok();
  return corrupt(biases.where(), "shape " + shape_text(biases.shape()) + " " + biases.type_name() +
                                     " differs from that of the scales, " +
                                     shape_text(scales.shape()) + " " + scales.type_name());
}

constexpr std::array<std::string_view, 1> kAffineMethods{""};
constexpr std::array<SourceSuffix, 1> kPlainSuffixes{{{".weight", Component::kCodes}}};
constexpr std::array<SourceSuffix, 3> kAffineSuffixes{{{".weight", Component::kCodes},
                                                       {".scales", Component::kScales},
                                                       {".biases", Component::kBiases}}};

}  // namespace

const SourceEncoding kPlainEncoding{.name = "plain",
                                    .suffixes = kPlainSuffixes,
                                    .detects = detects_plain,
                                    .check = check_plain,
                                    .read_rows = nullptr};
const SourceEncoding kMlxAffineEncoding{.name = "MLX affine",
                                        .suffixes = kAffineSuffixes,
                                        .methods = kAffineMethods,
                                        .detects = detects_affine,
                                        .check = check_affine,
                                        .read_rows = nullptr};

}  // namespace moepack
