// compressed-tensors' pack-quantized: codes of 2, 4 or 8 bits in 32-bit words along the input, as
// MLX packs them, counted from -2^(bits - 1); one scale for each group of inputs, and without
// symmetry a zero of as many bits for each group, packed along the outputs.
//   symmetric    w = (code - 2^(bits - 1)) * scale. These are affine codes with the bias
//                -2^(bits - 1) * scale, which is exact: a power of two times the scale.
//   asymmetric   w = (code - zero) * scale, decoded: zero * scale needs more digits than a bias
//   has.
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

bool detects_packed(const SourceModule& module) {
  return module.codes().dtype() == DType::kI32 && module.codes().name().ends_with(".weight_packed");
}

std::uint32_t bits_of(const ModuleForm& form) {
  return static_cast<std::uint32_t>(form.tensors.codes().shape().back() * kWordBits / form.cols);
}

Status check_codes(std::span<const std::uint64_t> shape, const ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  if (shape.size() != 2 || !same_outer_shape(codes, shape)) return source_shape_error(codes, shape);
  const std::uint64_t words = codes.shape().back();
  for (std::uint64_t bits : {2U, 4U, 8U}) {
    if (words <= form.cols && words * kWordBits == bits * form.cols) return Status::ok();
  }
  return unsupported(codes.where(), std::to_string(words) +
                                        " words a row hold no codes of 2, 4 or " +
                                        "8 bits for the " + std::to_string(form.cols) +
                                        " inputs that config.json gives");
}

Status check_parameters(std::span<const std::uint64_t> shape, const ModuleForm& form) {
  const SourceTensor& scales = form.tensors[Component::kScales];
  const SourceTensor& zeros = form.tensors[Component::kZeros];
  if (!scales) {
    return not_found(form.tensors.codes().where(),
                     "holds packed codes, but its weight_scale is missing",
                     "the checkpoint is incomplete; download it again");
  }
  if (const SourceTensor& order = form.tensors[Component::kOrder]; order) {
    return unsupported(order.where(),
                       "gives groups in the order of activations, which is not read");
  }
  const std::uint64_t groups =
      same_outer_shape(scales, shape) && scales.shape().back() != 0 ? scales.shape().back() : 0;
  if (groups == 0 || form.cols % groups != 0) return source_shape_error(scales, shape);
  MOE_RETURN_IF_ERROR(check_float_scales(scales));
  if (!zeros) return Status::ok();
  const std::uint64_t words = (form.rows * bits_of(form) + kWordBits - 1) / kWordBits;
  const std::array<std::uint64_t, 2> expected{words, groups};
  const auto found = zeros.shape();
  const bool fits = std::equal(found.begin(), found.end(), expected.begin(), expected.end());
  if (fits && zeros.dtype() == DType::kI32) return Status::ok();
  return corrupt(zeros.where(), "is " + zeros.type_name() + " " + shape_text(found) +
                                    ", but the codes and scales give I32 " + shape_text(expected));
}

Status check_packed(std::span<const std::uint64_t> shape, const SourceQuantization& /*declared*/,
                    ModuleForm& form) {
  MOE_RETURN_IF_ERROR(check_codes(shape, form));
  MOE_RETURN_IF_ERROR(check_parameters(shape, form));
  const SourceTensor& scales = form.tensors[Component::kScales];
  form.block_rows = 1;
  form.block_cols = form.cols / scales.shape().back();
  form.format = {.id = QFormatId::kF32};
  if (form.tensors[Component::kZeros] || scales.dtype() == DType::kF32) return Status::ok();
  if (form.block_cols > 128) return Status::ok();
  const WeightFormat affine{.id = *affine_qformat(bits_of(form)),
                            .group_size = static_cast<std::uint32_t>(form.block_cols),
                            .scale_type = scales.dtype()};
  if (matrix_bytes(affine, form.rows, form.cols).has_value()) form.format = affine;
  return Status::ok();
}

// -2^(bits - 1) * scale for each scale in `out`, in place.
Status scales_to_biases(const ModuleForm& form, std::uint64_t first_row, std::span<std::byte> out) {
  const float factor = -static_cast<float>(1U << (bits_of(form) - 1));
  const DType type = form.format.scale_type;
  for (std::size_t at = 0; at < out.size(); at += 2) {
    const float bias = load_plain_float(type, out.data() + at) * factor;
    const std::uint16_t stored = type == DType::kF16 ? f32_to_f16(bias) : f32_to_bf16(bias);
    store_le(out.data() + at, stored);
    if (std::isfinite(load_plain_float(type, out.data() + at))) continue;
    const std::uint64_t row = first_row + at / 2 / (form.cols / form.block_cols);
    return corrupt(form.tensors[Component::kScales].where(),
                   "row " + std::to_string(row) + " holds a scale that is too large for the bias " +
                       "of " + to_string(form.format) + ", or not finite",
                   "name another --expert-format, which decodes such weights");
  }
  return Status::ok();
}

// The zeros of one row, by group; 2^(bits - 1) where the module has none.
class ZeroRow {
 public:
  explicit ZeroRow(const ModuleForm& form)
      : tensor_(form.tensors[Component::kZeros]),
        bits_(bits_of(form)),
        values_(form.cols / form.block_cols, 1U << (bits_of(form) - 1)) {}

  Status load(std::uint64_t row) {
    if (!tensor_) return Status::ok();
    const std::uint64_t per_word = kWordBits / bits_;
    words_.resize(values_.size() * 4);
    MOE_RETURN_IF_ERROR(tensor_.read(row / per_word * words_.size(), words_));
    const auto shift = static_cast<std::uint32_t>(row % per_word) * bits_;
    for (std::size_t g = 0; g < values_.size(); ++g) {
      const auto word = load_le<std::uint32_t>(words_.data() + 4 * g);
      values_[g] = (word >> shift) & ((1U << bits_) - 1U);
    }
    return Status::ok();
  }
  std::uint32_t of(std::size_t group) const { return values_[group]; }

 private:
  const SourceTensor& tensor_;
  std::uint32_t bits_;
  std::vector<std::uint32_t> values_;
  std::vector<std::byte> words_;
};

Status decode_packed(const ModuleForm& form, std::uint64_t begin, std::uint64_t end,
                     std::span<std::byte> out) {
  const SourceTensor& scale_tensor = form.tensors[Component::kScales];
  const std::uint32_t bits = bits_of(form);
  const std::uint64_t groups = form.cols / form.block_cols;
  const std::uint64_t scale_size = dtype_bits(scale_tensor.dtype()) / 8;
  std::vector<std::byte> codes(form.cols * bits / 8);
  std::vector<std::byte> scales(groups * scale_size);
  ZeroRow zeros(form);
  for (std::uint64_t row = begin; row < end; ++row) {
    MOE_RETURN_IF_ERROR(form.tensors.codes().read(row * codes.size(), codes));
    MOE_RETURN_IF_ERROR(scale_tensor.read(row * scales.size(), scales));
    MOE_RETURN_IF_ERROR(zeros.load(row));
    std::byte* to = out.data() + (row - begin) * form.cols * 4;
    for (std::uint64_t c = 0; c < form.cols; ++c) {
      const std::uint64_t group = c / form.block_cols;
      const float scale =
          load_plain_float(scale_tensor.dtype(), scales.data() + group * scale_size);
      const auto code = static_cast<std::int32_t>(unpack_code(codes.data(), c, bits)) -
                        static_cast<std::int32_t>(zeros.of(group));
      store_le(to + 4 * c, static_cast<float>(code) * scale);
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
  return is_bias ? scales_to_biases(form, begin, out) : Status::ok();
}

constexpr std::array<SourceSuffix, 5> kPackedSuffixes{{{".weight_packed", Component::kCodes},
                                                       {".weight_scale", Component::kScales},
                                                       {".weight_zero_point", Component::kZeros},
                                                       {".weight_g_idx", Component::kOrder},
                                                       {".weight_shape", std::nullopt}}};

}  // namespace

const SourceEncoding kPackedIntegerEncoding{.name = "compressed-tensors packed integers",
                                            .suffixes = kPackedSuffixes,
                                            .detects = detects_packed,
                                            .check = check_packed,
                                            .read_rows = read_packed};

}  // namespace moepack
