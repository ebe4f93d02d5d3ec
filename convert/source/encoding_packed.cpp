// compressed-tensors' pack-quantized: codes of 2 to 8 bits in 32-bit words along the input, counted
// from -2^(bits - 1); one scale for each group of inputs, and without symmetry a zero of as many
// bits for each group, packed in the same way along the outputs. Codes follow each other without
// gaps, as MLX packs them; older versions leave the rest of a word free where the width does not
// divide 32, which the number of words tells.
//   symmetric    w = (code - 2^(bits - 1)) * scale. These are affine codes with the bias
//                -2^(bits - 1) * scale, which is exact: a power of two times the scale.
//   asymmetric   w = (code - zero) * scale, decoded: zero * scale needs more digits than a bias
//                has.
// With weight_g_idx each input names its group; such weights are decoded too.
// Source: compressed-tensors 0.20.0, PackedQuantizationCompressor.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "convert/source/source_encoding.h"
#include "formats/base/bytes.h"
#include "formats/weights/format_json.h"
#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

constexpr std::uint64_t kWordBits = 32;

bool detects_packed(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return module.codes().dtype() == DType::kI32 && is_named(module.codes(), ".weight_packed");
}

// Words of `count` codes; `per_word` as ModuleForm::codes_per_word.
std::uint64_t words_of(std::uint64_t count, std::uint32_t bits, std::uint32_t per_word) {
  return div_up(per_word == 0 ? count * bits : count, per_word == 0 ? kWordBits : per_word);
}

// Sets the width and the packing that give as many words.
Status set_width(std::uint64_t words, const SourceQuantization& declared, ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  std::size_t found = 0;
  for (std::uint32_t bits = 2; bits <= 8; ++bits) {
    if ((declared.code_widths >> bits & 1U) == 0) continue;
    const auto most = static_cast<std::uint32_t>(kWordBits / bits);
    const bool is_dense = words == words_of(form.cols, bits, 0);
    if (!is_dense && words != words_of(form.cols, bits, most)) continue;
    form.bits = bits;
    form.codes_per_word = is_dense ? 0 : most;
    ++found;
  }
  if (found == 1) return Status::ok();
  return corrupt(codes.where(), std::to_string(words) + " words a row hold " +
                                    (found == 0 ? "no codes" : "codes of more than one width") +
                                    " that config.json declares for the " +
                                    std::to_string(form.cols) + " inputs it gives");
}

Status check_zeros(std::uint64_t groups, const ModuleForm& form) {
  const SourceTensor& zeros = form.tensors[Component::kZeros];
  if (!zeros) return Status::ok();
  const std::array<std::uint64_t, 2> expected{words_of(form.rows, form.bits, form.codes_per_word),
                                              groups};
  if (zeros.dtype() == DType::kI32 && has_shape(zeros, expected)) return Status::ok();
  return component_shape_error(zeros, "I32", expected);
}

Status check_order(const ModuleForm& form) {
  const SourceTensor& order = form.tensors[Component::kOrder];
  const std::array<std::uint64_t, 1> expected{form.cols};
  if (!order || (order.dtype() == DType::kI32 && has_shape(order, expected))) return Status::ok();
  return component_shape_error(order, "I32", expected);
}

// The groups of the scales are those that config.json declares, if it declares one size.
Status check_declared_group(const SourceQuantization& declared, const ModuleForm& form) {
  const bool is_whole_row = form.block_cols == form.cols;
  if (declared.group_size == 0 || is_whole_row || declared.group_size == form.block_cols) {
    return Status::ok();
  }
  const SourceTensor& scales = form.tensors[Component::kScales];
  return corrupt(scales.where(), "shape " + shape_text(scales.shape()) + " is of groups of " +
                                     std::to_string(form.block_cols) +
                                     " inputs, but config.json gives group_size " +
                                     std::to_string(declared.group_size));
}

Status check_parameters(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                        ModuleForm& form) {
  const SourceTensor& scales = form.tensors[Component::kScales];
  if (!scales) return missing_component(form, "weight_scale");
  MOE_RETURN_IF_ERROR(
      refuse_other_components(form, {Component::kScales, Component::kZeros, Component::kOrder}));
  const std::uint64_t groups =
      same_outer_shape(scales, shape) && scales.shape().back() != 0 ? scales.shape().back() : 0;
  if (groups == 0 || form.cols % groups != 0) return source_shape_error(scales, shape);
  MOE_RETURN_IF_ERROR(check_float_scales(scales));
  form.block_rows = 1;
  form.block_cols = form.cols / groups;
  MOE_RETURN_IF_ERROR(check_declared_group(declared, form));
  MOE_RETURN_IF_ERROR(check_zeros(groups, form));
  return check_order(form);
}

// The affine format of the codes, or f32.
WeightFormat format_of_codes(const ModuleForm& form) {
  const bool is_kept = form.codes_per_word == 0 && !form.tensors[Component::kZeros] &&
                       !form.tensors[Component::kOrder];
  const auto affine = is_kept ? affine_format_of(form, form.block_cols) : std::nullopt;
  return affine.value_or(WeightFormat{.id = QFormatId::kF32});
}

Status check_packed(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                    ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  if (shape.size() != 2 || !same_outer_shape(codes, shape)) return source_shape_error(codes, shape);
  MOE_RETURN_IF_ERROR(set_width(codes.shape().back(), declared, form));
  MOE_RETURN_IF_ERROR(check_parameters(shape, declared, form));
  form.format = format_of_codes(form);
  return Status::ok();
}

// Code `index` of words in either packing.
std::uint32_t packed_code(const ModuleForm& form, const std::byte* words, std::uint64_t index) {
  if (form.codes_per_word == 0) return unpack_code(words, index, form.bits);
  const auto word = load_le<std::uint32_t>(words + 4 * (index / form.codes_per_word));
  const auto shift = static_cast<std::uint32_t>(index % form.codes_per_word) * form.bits;
  return (word >> shift) & ((1U << form.bits) - 1U);
}

// The zeros of one row, by group; 2^(bits - 1) where the module has none. They are packed along the
// rows: a word holds those of several rows, and a zero may lie in two.
class ZeroRow {
 public:
  explicit ZeroRow(const ModuleForm& form)
      : form_(form),
        tensor_(form.tensors[Component::kZeros]),
        values_(form.cols / form.block_cols, 1U << (form.bits - 1)) {}

  Status load(std::uint64_t row) {
    if (!tensor_) return Status::ok();
    const std::uint32_t per_word = form_.codes_per_word;
    const std::uint64_t bit = per_word == 0 ? row * form_.bits : 0;
    const std::uint64_t first = per_word == 0 ? bit / kWordBits : row / per_word;
    const auto shift =
        static_cast<std::uint32_t>(per_word == 0 ? bit % kWordBits : row % per_word * form_.bits);
    const bool is_split = shift + form_.bits > kWordBits;
    MOE_RETURN_IF_ERROR(read_words(first, is_split ? 2 : 1));
    for (std::size_t g = 0; g < values_.size(); ++g) {
      std::uint64_t window = load_le<std::uint32_t>(words_.data() + 4 * g);
      if (is_split) {
        const std::size_t next = 4 * (values_.size() + g);
        window |= std::uint64_t{load_le<std::uint32_t>(words_.data() + next)} << kWordBits;
      }
      values_[g] = static_cast<std::uint32_t>(window >> shift) & ((1U << form_.bits) - 1U);
    }
    return Status::ok();
  }
  std::uint32_t of(std::size_t group) const { return values_[group]; }

 private:
  // Rows of words [first, first + count), unless they are here already.
  Status read_words(std::uint64_t first, std::uint64_t count) {
    const std::uint64_t row_bytes = values_.size() * 4;
    if (words_.size() == count * row_bytes && first_ == first) return Status::ok();
    words_.resize(count * row_bytes);
    MOE_RETURN_IF_ERROR(tensor_.read(first * row_bytes, words_));
    first_ = first;
    return Status::ok();
  }

  const ModuleForm& form_;
  const SourceTensor& tensor_;
  std::vector<std::uint32_t> values_;
  std::vector<std::byte> words_;
  std::uint64_t first_ = 0;
};

// The scales of row `row` as floats.
Status load_scales(const ModuleForm& form, std::uint64_t row, std::vector<std::byte>& bytes,
                   std::vector<float>& values) {
  const SourceTensor& tensor = form.tensors[Component::kScales];
  const std::uint64_t size = dtype_bits(tensor.dtype()) / 8;
  values.resize(form.cols / form.block_cols);
  bytes.resize(values.size() * size);
  MOE_RETURN_IF_ERROR(tensor.read(row * bytes.size(), bytes));
  for (std::size_t g = 0; g < values.size(); ++g) {
    values[g] = load_scale(tensor.dtype(), bytes.data() + g * size);
    if (!std::isfinite(values[g])) return scale_error(tensor, row * values.size() + g, values[g]);
  }
  return Status::ok();
}

Status decode_packed(const ModuleForm& form, std::uint64_t begin, std::uint64_t end,
                     std::span<std::byte> out) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> groups, input_groups(form));
  std::vector<std::byte> codes(4 * words_of(form.cols, form.bits, form.codes_per_word));
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  ZeroRow zeros(form);
  for (std::uint64_t row = begin; row < end; ++row) {
    MOE_RETURN_IF_ERROR(form.tensors.codes().read(row * codes.size(), codes));
    MOE_RETURN_IF_ERROR(load_scales(form, row, bytes, scales));
    MOE_RETURN_IF_ERROR(zeros.load(row));
    std::byte* to = out.data() + (row - begin) * form.cols * 4;
    for (std::uint64_t c = 0; c < form.cols; ++c) {
      const auto code = static_cast<std::int32_t>(packed_code(form, codes.data(), c)) -
                        static_cast<std::int32_t>(zeros.of(groups[c]));
      store_le(to + 4 * c, static_cast<float>(code) * scales[groups[c]]);
    }
  }
  return Status::ok();
}

Status read_packed(const ModuleForm& form, Component component, std::uint64_t begin,
                   std::uint64_t end, std::span<std::byte> out) {
  if (form.format.id == QFormatId::kF32) return decode_packed(form, begin, end, out);
  const std::uint64_t row_bytes = out.size() / (end - begin);
  const bool is_bias = component == Component::kBiases;
  const SourceTensor& from = form.tensors[is_bias ? Component::kScales : component];
  MOE_RETURN_IF_ERROR(from.read(begin * row_bytes, out));
  return is_bias ? scales_to_biases(form, row_bytes / 2, begin, out) : Status::ok();
}

constexpr std::array<std::string_view, 1> kPackedIntegerMethods{"compressed-tensors"};
constexpr std::array<SourceSuffix, 5> kPackedSuffixes{{{".weight_packed", Component::kCodes},
                                                       {".weight_scale", Component::kScales},
                                                       {".weight_zero_point", Component::kZeros},
                                                       {".weight_g_idx", Component::kOrder},
                                                       {".weight_shape", std::nullopt}}};

}  // namespace

const SourceEncoding kPackedIntegerEncoding{.name = "compressed-tensors packed integers",
                                            .suffixes = kPackedSuffixes,
                                            .methods = kPackedIntegerMethods,
                                            .detects = detects_packed,
                                            .check = check_packed,
                                            .read_rows = read_packed};

}  // namespace moepack
