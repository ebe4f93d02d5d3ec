#include "convert/source/source_matrix.h"

#include <algorithm>

#include "convert/source/tensor_names.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

Status shape_error(const SourceTensor& tensor, std::span<const std::uint64_t> expected) {
  return corrupt(tensor.where(), "shape " + shape_text(tensor.shape()) + ", but " +
                                     std::string(tensor.configured_by()) + " gives " +
                                     shape_text(expected));
}

// True when all dimensions but the last agree.
bool same_outer_shape(const SourceTensor& tensor, std::span<const std::uint64_t> shape) {
  const auto found = tensor.shape();
  return found.size() == shape.size() && !found.empty() &&
         std::equal(found.begin(), found.end() - 1, shape.begin());
}

std::string module_name(const SourceTensor& codes) {
  const std::string whole = codes.name();
  std::string_view name = whole;
  return take_component_suffix(name) == Component::kCodes ? std::string(name) : whole;
}

Result<WeightFormat> infer_affine(const SourceModule& module,
                                  std::span<const std::uint64_t> shape) {
  const SourceTensor& codes = module.codes();
  for (Component c : {Component::kScales, Component::kBiases}) {
    if (module[c]) continue;
    return not_found(
        codes.where(),
        "holds packed codes, but its " + std::string(component_suffix(c)) + " is missing",
        "the checkpoint is incomplete or of another quantization mode than affine");
  }
  const std::uint64_t inputs = shape.back();
  if (!same_outer_shape(codes, shape)) return shape_error(codes, shape);
  const std::uint64_t words = codes.shape().back();
  const std::uint64_t bits = words <= inputs ? words * 32 / inputs : 0;
  const auto id = affine_qformat(static_cast<std::uint32_t>(bits));
  if (!id.has_value() || bits * inputs != words * 32) {
    return corrupt(codes.where(), std::to_string(words) +
                                      " words a row hold no whole code width for the " +
                                      std::to_string(inputs) + " inputs that config.json gives");
  }
  WeightFormat format{.id = *id};
  const SourceTensor& scales = module[Component::kScales];
  if (!same_outer_shape(scales, shape)) return shape_error(scales, shape);
  const std::uint64_t groups = scales.shape().back();
  const std::uint64_t group = groups == 0 ? 0 : inputs / groups;
  if (group * groups != inputs || group > 128 ||
      !is_valid_group_size(static_cast<std::uint32_t>(group))) {
    return corrupt(scales.where(), std::to_string(groups) +
                                       " scales a row are no groups of 32, 64 or 128 of the " +
                                       std::to_string(inputs) + " inputs that config.json gives");
  }
  format.group_size = static_cast<std::uint32_t>(group);
  if (scales.dtype() != DType::kBf16 && scales.dtype() != DType::kF16) {
    return unsupported(scales.where(), "scales of dtype " + scales.type_name() +
                                           " cannot be converted, only BF16 and F16");
  }
  format.scale_type = scales.dtype();
  const SourceTensor& biases = module[Component::kBiases];
  const bool same_shape = std::equal(biases.shape().begin(), biases.shape().end(),
                                     scales.shape().begin(), scales.shape().end());
  if (!same_shape || biases.dtype() != scales.dtype()) {
    return corrupt(biases.where(), "shape " + shape_text(biases.shape()) + " " +
                                       biases.type_name() + " differs from that of the scales, " +
                                       shape_text(scales.shape()) + " " + scales.type_name());
  }
  return format;
}

TensorSlice slice_component(const SourceTensor& tensor, std::uint64_t matrix_bytes,
                            std::uint64_t index, std::uint64_t rows, std::uint64_t row_begin,
                            std::uint64_t row_count) {
  const std::uint64_t row_bytes = matrix_bytes / rows;
  return {.tensor = tensor,
          .begin = index * matrix_bytes + row_begin * row_bytes,
          .bytes = row_count * row_bytes};
}

}  // namespace

std::uint64_t SourceMatrix::bytes() const {
  std::uint64_t sum = 0;
  for (const TensorSlice& slice : slices) sum += slice.bytes;
  return sum;
}

Status SourceModule::add(Component component, const SourceTensor& tensor) {
  SourceTensor& slot = (*this)[component];
  if (slot) {
    return corrupt(tensor.where(), "means the same as tensor " + printable(slot.name()),
                   "remove one of the two");
  }
  slot = tensor;
  return Status::ok();
}

DeclaredFormats::DeclaredFormats(const Architecture& names,
                                 const std::optional<QuantizationConfig>& quantization)
    : names_(&names) {
  if (!quantization.has_value()) return;
  default_ = quantization->default_format;
  for (const QuantizationConfig::Entry& entry : quantization->overrides) {
    const auto canonical = canonical_name(names, entry.module);
    overrides_.insert_or_assign(canonical.value_or(entry.module), entry.format);
  }
}

Status DeclaredFormats::check(const SourceTensor& codes, const WeightFormat& found) const {
  if (!default_.has_value()) return Status::ok();
  const std::string module = module_name(codes);
  const auto it = overrides_.find(canonical_name(*names_, module).value_or(module));
  const bool overridden = it != overrides_.end();
  // Without an override, modules that are not quantized are left out silently.
  if (!overridden && !is_affine(found)) return Status::ok();
  const std::optional<WeightFormat> declared = overridden ? it->second : default_;
  const bool agrees = declared.has_value()
                          ? declared->id == found.id && declared->group_size == found.group_size
                          : !is_affine(found);
  if (agrees) return Status::ok();
  return corrupt(codes.where(),
                 "its shapes give " + to_string(found) +
                     ", but the quantization block of config.json says " +
                     (declared.has_value() ? to_string(*declared) : std::string("not quantized")));
}

Result<WeightFormat> infer_format(const SourceModule& module,
                                  std::span<const std::uint64_t> shape) {
  const SourceTensor& codes = module.codes();
  if (codes.dtype() == DType::kU32) return infer_affine(module, shape);
  const auto format = codes.format();
  if (!format.has_value()) {
    return unsupported(codes.where(), "dtype " + codes.type_name() + " cannot be converted");
  }
  for (Component c : kAllComponents) {
    if (c == Component::kCodes || !module[c]) continue;
    return corrupt(module[c].where(),
                   "belongs to a weight of dtype " + codes.type_name() + ", which needs none");
  }
  const auto found = codes.shape();
  const bool fits = codes.is_gguf()
                        ? same_but_for_ones(found, shape)
                        : std::equal(found.begin(), found.end(), shape.begin(), shape.end());
  if (!fits) return shape_error(codes, shape);
  return *format;
}

SourceMatrix slice_matrix(const SourceModule& module, const WeightFormat& format,
                          std::uint64_t index, std::uint64_t rows, std::uint64_t cols,
                          std::uint64_t row_begin, std::uint64_t row_count) {
  const MatrixBytes bytes = matrix_bytes(format, rows, cols).value_or(MatrixBytes{});
  SourceMatrix matrix;
  matrix.format = format;
  matrix.rows = row_count;
  matrix.cols = cols;
  for (Component c : stored_components(format)) {
    matrix.slices[c] = slice_component(module[c], bytes[c], index, rows, row_begin, row_count);
  }
  return matrix;
}

SourceMatrix gather_rows(const SourceMatrix& whole, RowRuns runs) {
  SourceMatrix matrix = whole;
  matrix.rows = count_rows(runs);
  for (TensorSlice& slice : matrix.slices) {
    slice.bytes = slice.bytes / whole.rows * matrix.rows;
  }
  matrix.runs = std::make_shared<const RowRuns>(std::move(runs));
  return matrix;
}

}  // namespace moepack
