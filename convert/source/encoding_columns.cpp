// GPTQ and AWQ: matrices that lie as [inputs, outputs], so that what a row of weights needs is a
// column of the file's tensors.
//   GPTQ   qweight packs codes along the inputs, qzeros along the outputs, both as streams of bits
//          in 32-bit words; g_idx names the group of each input. w = scale * (code - zero), where
//          version 1 stores the zero less one.
//   AWQ    (gemm) qweight and qzeros pack four bits along the outputs, eight to a word in the order
//          0 2 4 6 1 3 5 7. w = scale * (code - zero).
// Stored: GPTQ's symmetric codes, without an order of activations, as affine codes with the bias
// -2^(bits - 1) * scale, which is exact; that each zero is the middle and each input in its place
// is checked while reading. All else is decoded, as a product of zero and scale needs more digits
// than a bias has. Sources: auto-gptq 0.7.1 QuantLinear; autoawq 0.2.7 dequantize_gemm.
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

constexpr std::uint64_t kColumnWordBits = 32;
constexpr std::uint64_t kSlabBytes = std::uint64_t{1} << 20;

bool detects_gptq(const SourceModule& module, const SourceQuantization& declared) {
  return is_named(module.codes(), ".qweight") && declared.method != "awq";
}
bool detects_awq(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return is_named(module.codes(), ".qweight");
}

std::uint64_t words_for(std::uint64_t codes, std::uint32_t bits) {
  return div_up(codes * bits, kColumnWordBits);
}

Status check_tensor(const SourceTensor& tensor, DType type,
                    std::initializer_list<std::uint64_t> expected) {
  const std::span<const std::uint64_t> shape(expected.begin(), expected.size());
  if (tensor.dtype() == type && has_shape(tensor, shape)) return Status::ok();
  return component_shape_error(tensor, dtype_name(type), shape);
}

// Scales and zeros of [groups, outputs].
Status check_groups(const SourceQuantization& declared, ModuleForm& form) {
  const SourceTensor& scales = form.tensors[Component::kScales];
  const SourceTensor& zeros = form.tensors[Component::kZeros];
  if (!scales) return missing_component(form, "scales");
  if (!zeros) return missing_component(form, "qzeros");
  MOE_RETURN_IF_ERROR(
      refuse_other_components(form, {Component::kScales, Component::kZeros, Component::kOrder}));
  form.block_rows = 1;
  form.block_cols = declared.group_size == 0 ? form.cols : declared.group_size;
  const std::uint64_t groups = div_up(form.cols, form.block_cols);
  const std::array<std::uint64_t, 2> expected{groups, form.rows};
  if (!plain_qformat(scales.dtype()).has_value() || !has_shape(scales, expected)) {
    return component_shape_error(scales, "F16", expected);
  }
  return check_tensor(zeros, DType::kI32, {groups, words_for(form.rows, form.bits)});
}

Status check_matrix(std::span<const std::uint64_t> shape, const ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  if (codes.dtype() == DType::kI32 && shape.size() == 2 && codes.shape().size() == 2) {
    return Status::ok();
  }
  return source_shape_error(codes, shape);
}

// The affine format of codes whose zeros are all in the middle, or f32.
WeightFormat affine_of_gptq(const SourceQuantization& declared, const ModuleForm& form) {
  const bool is_kept =
      declared.symmetric && !declared.any_order && form.cols % form.block_cols == 0;
  const auto affine = is_kept ? affine_format_of(form, form.block_cols) : std::nullopt;
  return affine.value_or(WeightFormat{.id = QFormatId::kF32});
}

Status check_gptq(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                  ModuleForm& form) {
  MOE_RETURN_IF_ERROR(check_matrix(shape, form));
  const SourceTensor& codes = form.tensors.codes();
  form.zeros_less_one = declared.zeros_less_one;
  for (std::uint32_t bits : {2U, 3U, 4U, 8U}) {
    const bool is_declared = (declared.code_widths >> bits & 1U) != 0;
    if (is_declared && codes.shape()[0] == words_for(form.cols, bits)) form.bits = bits;
  }
  if (form.bits == 0 || codes.shape()[1] != form.rows) {
    return corrupt(codes.where(), "shape " + shape_text(codes.shape()) +
                                      " holds no codes that config.json declares for the " +
                                      std::to_string(form.cols) + " inputs and " +
                                      std::to_string(form.rows) +
                                      " outputs that config.json gives");
  }
  MOE_RETURN_IF_ERROR(check_groups(declared, form));
  const SourceTensor& order = form.tensors[Component::kOrder];
  if (order) {
    MOE_RETURN_IF_ERROR(check_tensor(order, DType::kI32, {form.cols}));
  } else if (declared.any_order) {
    return missing_component(form, "g_idx");
  }
  form.format = affine_of_gptq(declared, form);
  return Status::ok();
}

Status check_awq(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                 ModuleForm& form) {
  MOE_RETURN_IF_ERROR(check_matrix(shape, form));
  const SourceTensor& codes = form.tensors.codes();
  form.bits = 4;
  const std::array<std::uint64_t, 2> expected{form.cols, words_for(form.rows, 4)};
  if (form.rows % 8 != 0 || !has_shape(codes, expected)) {
    return source_shape_error(codes, expected);
  }
  if (form.tensors[Component::kOrder]) {
    return refuse_other_components(form, {Component::kScales, Component::kZeros});
  }
  if (declared.group_size != 0 && form.cols % declared.group_size != 0) {
    return corrupt(codes.where(),
                   "has " + std::to_string(form.cols) + " inputs, no multiple of the group_size " +
                       std::to_string(declared.group_size) + " that config.json gives");
  }
  form.format = {.id = QFormatId::kF32};
  return check_groups(declared, form);
}

// Bytes [first, first + width) of each row of a tensor of `rows` rows of `row_bytes`, into
// [rows, width]. Wide pieces are cut out of whole rows, narrow ones read one by one.
Status read_columns(const SourceTensor& tensor, std::uint64_t rows, std::uint64_t row_bytes,
                    std::uint64_t first, std::uint64_t width, std::vector<std::byte>& out) {
  out.resize(rows * width);
  if (width * 8 < row_bytes) {
    for (std::uint64_t row = 0; row < rows; ++row) {
      MOE_RETURN_IF_ERROR(
          tensor.read(row * row_bytes + first, std::span(out).subspan(row * width, width)));
    }
    return Status::ok();
  }
  const std::uint64_t slab_rows = std::max<std::uint64_t>(1, kSlabBytes / row_bytes);
  std::vector<std::byte> slab;
  for (std::uint64_t begin = 0; begin < rows; begin += slab_rows) {
    const std::uint64_t count = std::min(slab_rows, rows - begin);
    slab.resize(count * row_bytes);
    MOE_RETURN_IF_ERROR(tensor.read(begin * row_bytes, slab));
    for (std::uint64_t row = 0; row < count; ++row) {
      std::copy_n(slab.data() + row * row_bytes + first, width, out.data() + (begin + row) * width);
    }
  }
  return Status::ok();
}

// Outputs [begin, end) of a module: codes, scales and zeros of each.
class Columns {
 public:
  Columns(const ModuleForm& form, std::uint64_t begin, std::uint64_t end)
      : form_(form),
        is_awq_(form.encoding == &kAwqEncoding),
        begin_(begin),
        count_(end - begin),
        groups_(div_up(form.cols, form.block_cols)) {}

  Status read_codes() {
    if (is_awq_) {
      return read_columns(form_.tensors.codes(), form_.cols, form_.rows / 2, awq_first(),
                          awq_width(), codes_);
    }
    return read_columns(form_.tensors.codes(), words_for(form_.cols, form_.bits), form_.rows * 4,
                        begin_ * 4, count_ * 4, codes_);
  }

  Status read_scales() {
    const SourceTensor& tensor = form_.tensors[Component::kScales];
    const std::uint64_t size = dtype_bits(tensor.dtype()) / 8;
    MOE_RETURN_IF_ERROR(read_columns(tensor, groups_, form_.rows * size, begin_ * size,
                                     count_ * size, scale_bytes_));
    scales_.resize(groups_ * count_);
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      scales_[i] = load_plain_float(tensor.dtype(), scale_bytes_.data() + i * size);
      if (std::isfinite(scales_[i])) continue;
      return scale_error(tensor, i / count_ * form_.rows + begin_ + i % count_, scales_[i]);
    }
    return Status::ok();
  }

  Status read_zeros() {
    const SourceTensor& tensor = form_.tensors[Component::kZeros];
    const std::uint64_t row_bytes = words_for(form_.rows, form_.bits) * 4;
    zeros_.resize(groups_ * count_);
    std::vector<std::byte> row(row_bytes);
    for (std::uint64_t g = 0; g < groups_; ++g) {
      MOE_RETURN_IF_ERROR(tensor.read(g * row_bytes, row));
      for (std::uint64_t o = 0; o < count_; ++o) {
        const std::uint64_t at = begin_ + o;
        zeros_[g * count_ + o] =
            is_awq_ ? static_cast<std::int32_t>(awq_code(row.data(), at))
                    : static_cast<std::int32_t>(unpack_code(row.data(), at, form_.bits)) +
                          (form_.zeros_less_one ? 1 : 0);
      }
    }
    return Status::ok();
  }

  // The code of output begin + o and input c.
  std::uint32_t code(std::uint64_t o, std::uint64_t c) const {
    if (is_awq_) {
      const std::uint64_t inside = begin_ + o - awq_first() * 2;
      return awq_code(codes_.data() + c * awq_width(), inside);
    }
    const std::uint64_t bit = c * form_.bits;
    const std::byte* const at = codes_.data() + (bit / kColumnWordBits * count_ + o) * 4;
    const auto shift = static_cast<std::uint32_t>(bit % kColumnWordBits);
    std::uint64_t window = load_le<std::uint32_t>(at);
    if (shift + form_.bits > kColumnWordBits) {
      window |= std::uint64_t{load_le<std::uint32_t>(at + 4 * count_)} << kColumnWordBits;
    }
    return static_cast<std::uint32_t>(window >> shift) & ((1U << form_.bits) - 1U);
  }
  float scale(std::uint64_t o, std::uint64_t group) const { return scales_[group * count_ + o]; }
  std::int32_t zero(std::uint64_t o, std::uint64_t group) const {
    return zeros_[group * count_ + o];
  }
  const std::byte* scale_bytes(std::uint64_t o, std::uint64_t group) const {
    return scale_bytes_.data() + 2 * (group * count_ + o);
  }
  std::uint64_t groups() const { return groups_; }
  std::uint64_t count() const { return count_; }

 private:
  // Column 8 w + k stands in this nibble of word w.
  static std::uint32_t awq_code(const std::byte* words, std::uint64_t column) {
    static constexpr std::array<std::uint32_t, 8> kPlaces{0, 4, 1, 5, 2, 6, 3, 7};
    const auto word = load_le<std::uint32_t>(words + column / 8 * 4);
    return (word >> (4 * kPlaces[column % 8])) & 15U;
  }
  // The bytes of a row with the words of these outputs.
  std::uint64_t awq_first() const { return begin_ / 8 * 4; }
  std::uint64_t awq_width() const { return (begin_ + count_ + 7) / 8 * 4 - awq_first(); }

  const ModuleForm& form_;
  bool is_awq_;
  std::uint64_t begin_;
  std::uint64_t count_;
  std::uint64_t groups_;
  std::vector<std::byte> codes_;
  std::vector<std::byte> scale_bytes_;
  std::vector<float> scales_;        // [groups, count]
  std::vector<std::int32_t> zeros_;  // [groups, count]
};

Status decode_columns(const ModuleForm& form, std::uint64_t begin, std::uint64_t end,
                      std::span<std::byte> out) {
  Columns columns(form, begin, end);
  MOE_ASSIGN_OR_RETURN(const auto groups, input_groups(form));
  MOE_RETURN_IF_ERROR(columns.read_codes());
  MOE_RETURN_IF_ERROR(columns.read_scales());
  MOE_RETURN_IF_ERROR(columns.read_zeros());
  for (std::uint64_t o = 0; o < columns.count(); ++o) {
    std::byte* const to = out.data() + o * form.cols * 4;
    for (std::uint64_t c = 0; c < form.cols; ++c) {
      const auto code = static_cast<std::int32_t>(columns.code(o, c)) - columns.zero(o, groups[c]);
      store_le(to + 4 * c, columns.scale(o, groups[c]) * static_cast<float>(code));
    }
  }
  return Status::ok();
}

Status pack_codes(const ModuleForm& form, Columns& columns, std::span<std::byte> out) {
  MOE_RETURN_IF_ERROR(input_groups(form).status());
  MOE_RETURN_IF_ERROR(columns.read_codes());
  const std::uint64_t row_bytes = out.size() / columns.count();
  std::fill(out.begin(), out.end(), std::byte{});
  for (std::uint64_t o = 0; o < columns.count(); ++o) {
    for (std::uint64_t c = 0; c < form.cols; ++c) {
      pack_code(out.data() + o * row_bytes, c, form.bits, columns.code(o, c));
    }
  }
  return Status::ok();
}

Status check_zeros_in_the_middle(const ModuleForm& form, Columns& columns, std::uint64_t begin) {
  MOE_RETURN_IF_ERROR(columns.read_zeros());
  const std::int32_t middle = 1 << (form.bits - 1);
  for (std::uint64_t g = 0; g < columns.groups(); ++g) {
    for (std::uint64_t o = 0; o < columns.count(); ++o) {
      if (columns.zero(o, g) == middle) continue;
      return corrupt(form.tensors[Component::kZeros].where(),
                     "the zero of output " + std::to_string(begin + o) + ", group " +
                         std::to_string(g) + " is " + std::to_string(columns.zero(o, g)) +
                         ", but config.json says sym true",
                     "name another --expert-format, which decodes such weights");
    }
  }
  return Status::ok();
}

Status read_kept_columns(const ModuleForm& form, Component component, std::uint64_t begin,
                         std::uint64_t end, std::span<std::byte> out) {
  Columns columns(form, begin, end);
  if (component == Component::kCodes) return pack_codes(form, columns, out);
  MOE_RETURN_IF_ERROR(columns.read_scales());
  for (std::uint64_t o = 0; o < columns.count(); ++o) {
    for (std::uint64_t g = 0; g < columns.groups(); ++g) {
      std::copy_n(columns.scale_bytes(o, g), 2, out.data() + 2 * (o * columns.groups() + g));
    }
  }
  if (component == Component::kScales) return Status::ok();
  MOE_RETURN_IF_ERROR(check_zeros_in_the_middle(form, columns, begin));
  return scales_to_biases(form, columns.groups(), begin, out);
}

// As many outputs at once as keep the buffers small.
Status read_outputs(const ModuleForm& form, Component component, std::uint64_t begin,
                    std::uint64_t end, std::span<std::byte> out) {
  const std::uint64_t row_bytes = out.size() / (end - begin);
  const std::uint64_t step = std::max<std::uint64_t>(8, 8 * kSlabBytes / (form.cols * 4));
  for (std::uint64_t first = begin; first < end; first += step) {
    const std::uint64_t stop = std::min(end, first + step);
    const auto part = out.subspan((first - begin) * row_bytes, (stop - first) * row_bytes);
    MOE_RETURN_IF_ERROR(form.format.id == QFormatId::kF32
                            ? decode_columns(form, first, stop, part)
                            : read_kept_columns(form, component, first, stop, part));
  }
  return Status::ok();
}

constexpr std::array<std::string_view, 1> kGptqMethods{"gptq"};
constexpr std::array<std::string_view, 1> kAwqMethods{"awq"};
constexpr std::array<SourceSuffix, 4> kColumnSuffixes{{{".qweight", Component::kCodes},
                                                       {".qzeros", Component::kZeros},
                                                       {".scales", Component::kScales},
                                                       {".g_idx", Component::kOrder}}};

}  // namespace

const SourceEncoding kGptqEncoding{.name = "GPTQ",
                                   .suffixes = kColumnSuffixes,
                                   .methods = kGptqMethods,
                                   .detects = detects_gptq,
                                   .check = check_gptq,
                                   .read_rows = read_outputs};
const SourceEncoding kAwqEncoding{.name = "AWQ",
                                  .suffixes = kColumnSuffixes,
                                  .methods = kAwqMethods,
                                  .detects = detects_awq,
                                  .check = check_awq,
                                  .read_rows = read_outputs};

}  // namespace moepack
