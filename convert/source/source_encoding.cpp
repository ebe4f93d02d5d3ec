#include "convert/source/source_encoding.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"
#include "formats/weights/float_blocks.h"
#include "formats/weights/format_json.h"

namespace moepack {

Status SourceModule::add(Component component, const SourceTensor& tensor) {
  SourceTensor& slot = (*this)[component];
  if (slot) {
    return corrupt(tensor.where(), "means the same as tensor " + printable(slot.name()),
                   "remove one of the two");
  }
  slot = tensor;
  return Status::ok();
}

bool ModuleForm::is_decoded() const {
  return encoding->read_rows != nullptr && !encoding->only_moves && format.id == QFormatId::kF32;
}

std::span<const SourceEncoding* const> source_encodings() {
  static constexpr std::array<const SourceEncoding*, 11> kEncodings{
      &kPlainEncoding,       &kMlxAffineEncoding,
      &kMlxFloatEncoding,    &kFp8Encoding,
      &kInt8Encoding,        &kPackedIntegerEncoding,
      &kPackedFloatEncoding, &kModelOptFloatEncoding,
      &kOpenAiFloatEncoding, &kGptqEncoding,
      &kAwqEncoding};
  return kEncodings;
}

std::optional<SourceSuffix> take_source_suffix(std::string_view& name) {
  for (const SourceEncoding* encoding : source_encodings()) {
    for (const SourceSuffix& known : encoding->suffixes) {
      if (!name.ends_with(known.suffix)) continue;
      name.remove_suffix(known.suffix.size());
      return known;
    }
  }
  return std::nullopt;
}

Status source_shape_error(const SourceTensor& tensor, std::span<const std::uint64_t> expected) {
  return corrupt(tensor.where(), "shape " + shape_text(tensor.shape()) + ", but " +
                                     std::string(tensor.configured_by()) + " gives " +
                                     shape_text(expected));
}

Status component_shape_error(const SourceTensor& tensor, std::string_view type,
                             std::span<const std::uint64_t> expected) {
  return corrupt(tensor.where(), "is " + tensor.type_name() + " " + shape_text(tensor.shape()) +
                                     ", but the codes and scales beside it ask for " +
                                     std::string(type) + " " + shape_text(expected));
}

Status missing_component(const ModuleForm& form, std::string_view suffix) {
  return not_found(form.tensors.codes().where(),
                   "holds " + std::string(form.encoding->name) + " codes, but its " +
                       std::string(suffix) + " is missing",
                   "the checkpoint is incomplete; download it again");
}

Status refuse_other_components(const ModuleForm& form, std::initializer_list<Component> allowed) {
  for (Component c : kAllComponents) {
    if (c == Component::kCodes || !form.tensors[c]) continue;
    if (std::find(allowed.begin(), allowed.end(), c) != allowed.end()) continue;
    return corrupt(
        form.tensors[c].where(),
        "belongs to a weight in " + std::string(form.encoding->name) + ", which needs none");
  }
  return Status::ok();
}

Status check_float_scales(const SourceTensor& scales) {
  if (plain_qformat(scales.dtype()).has_value() || scales.dtype() == DType::kF8E8M0) {
    return Status::ok();
  }
  return unsupported(scales.where(), "scales of dtype " + scales.type_name() +
                                         " cannot be converted, only F32, BF16, F16 and F8_E8M0");
}

float load_scale(DType type, const std::byte* at) {
  if (type == DType::kF8E8M0) return e8m0_to_f32(std::to_integer<std::uint8_t>(*at));
  return load_plain_float(type, at);
}

Status scale_error(const SourceTensor& scales, std::uint64_t index, float value) {
  Where where = scales.where();
  where.offset = scales.offset() + index * (dtype_bits(scales.dtype()) / 8);
  const char* const what = std::isnan(value) ? "not a number" : value == 0 ? "zero" : "infinite";
  return corrupt(where, "scale " + std::to_string(index) + " is " + what,
                 "download the file again");
}

bool same_outer_shape(const SourceTensor& tensor, std::span<const std::uint64_t> shape) {
  const auto found = tensor.shape();
  return found.size() == shape.size() && !found.empty() &&
         std::equal(found.begin(), found.end() - 1, shape.begin());
}

bool has_shape(const SourceTensor& tensor, std::span<const std::uint64_t> shape) {
  const auto found = tensor.shape();
  return std::equal(found.begin(), found.end(), shape.begin(), shape.end());
}

bool is_named(const SourceTensor& tensor, std::string_view suffix) {
  return std::string_view(tensor.name()).ends_with(suffix);
}

Status scales_to_biases(const ModuleForm& form, std::uint64_t groups, std::uint64_t first_row,
                        std::span<std::byte> out) {
  const float factor = -static_cast<float>(1U << (form.bits - 1));
  const DType type = form.format.scale_type;
  for (std::size_t at = 0; at < out.size(); at += 2) {
    const float bias = load_plain_float(type, out.data() + at) * factor;
    const std::uint16_t stored = type == DType::kF16 ? f32_to_f16(bias) : f32_to_bf16(bias);
    store_le(out.data() + at, stored);
    if (std::isfinite(load_plain_float(type, out.data() + at))) continue;
    const std::uint64_t row = first_row + at / 2 / groups;
    return corrupt(form.tensors[Component::kScales].where(),
                   "row " + std::to_string(row) + " holds a scale that is too large for the bias " +
                       "of " + to_string(form.format) + ", or not finite",
                   "name another --expert-format, which decodes such weights");
  }
  return Status::ok();
}

std::optional<WeightFormat> affine_format_of(const ModuleForm& form, std::uint64_t group) {
  constexpr std::uint64_t kMaxGroup = 128;
  const DType type = form.tensors[Component::kScales].dtype();
  const auto id = affine_qformat(form.bits);
  if (!id.has_value() || (type != DType::kF16 && type != DType::kBf16) || group > kMaxGroup) {
    return std::nullopt;
  }
  const WeightFormat affine{
      .id = *id, .group_size = static_cast<std::uint32_t>(group), .scale_type = type};
  if (!matrix_bytes(affine, form.rows, form.cols).has_value()) return std::nullopt;
  return affine;
}

Result<std::vector<std::uint32_t>> input_groups(const ModuleForm& form) {
  std::vector<std::uint32_t> groups(form.cols);
  const SourceTensor& order = form.tensors[Component::kOrder];
  std::vector<std::byte> bytes(order ? sizeof(std::uint32_t) * form.cols : 0);
  if (order) MOE_RETURN_IF_ERROR(order.read(0, bytes));
  for (std::uint64_t c = 0; c < form.cols; ++c) {
    const auto usual = static_cast<std::uint32_t>(c / form.block_cols);
    groups[c] = order ? load_le<std::uint32_t>(bytes.data() + sizeof(std::uint32_t) * c) : usual;
    if (groups[c] >= div_up(form.cols, form.block_cols)) {
      return corrupt(order.where(),
                     "gives input " + std::to_string(c) + " a group that has no scale",
                     "download the file again");
    }
    if (form.format.id == QFormatId::kF32 || groups[c] == usual) continue;
    return corrupt(order.where(),
                   "gives input " + std::to_string(c) + " another group than its place, but " +
                       "config.json says desc_act false",
                   "name another --expert-format, which decodes such weights");
  }
  return groups;
}

namespace {

Status check_method(const SourceEncoding& encoding, const SourceTensor& codes,
                    const SourceQuantization& declared) {
  const auto known = encoding.methods;
  if (known.empty() || std::find(known.begin(), known.end(), declared.method) != known.end()) {
    return Status::ok();
  }
  const std::string said =
      declared.method.empty() ? std::string("config.json names no quantization method")
                              : "config.json says that " + declared.method + " quantized the model";
  return corrupt(codes.where(), "holds " + std::string(encoding.name) + " codes, but " + said,
                 "download config.json again");
}

}  // namespace

Result<ModuleForm> recognise_module(const SourceModule& module,
                                    std::span<const std::uint64_t> shape,
                                    const SourceQuantization& declared) {
  const SourceTensor& codes = module.codes();
  for (const SourceEncoding* encoding : source_encodings()) {
    if (!encoding->detects(module, declared)) continue;
    MOE_RETURN_IF_ERROR(check_method(*encoding, codes, declared));
    ModuleForm form{.encoding = encoding, .tensors = module, .format = {}, .named = {}};
    form.rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
    form.cols = shape.back();
    for (std::size_t i = 0; i + 2 < shape.size(); ++i) form.matrices *= shape[i];
    MOE_RETURN_IF_ERROR(encoding->check(shape, declared, form));
    if (encoding != &kMlxFloatEncoding) form.named = form.format;
    return form;
  }
  return unsupported(codes.where(), "dtype " + codes.type_name() + " cannot be converted");
}

}  // namespace moepack
