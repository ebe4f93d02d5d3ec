// Small floats with scales of small groups: E2M1 (MXFP4, NVFP4) two to a byte, the first weight in
// the low half, and E4M3 (MXFP8). Those who write them differ in names, in words of 8 or 32 bits
// (which hold the same bytes), and in the factor of a whole matrix:
//   mxfp4, mxfp8                  w = code * 2^(scale - 127)
//   nvfp4                         w = code * e4m3(scale)
//   nvfp4 of ModelOpt             w = code * (e4m3(scale) * weight_scale_2)
//   nvfp4 of compressed-tensors   w = code * (e4m3(scale) / weight_global_scale)
//   nvfp4 of MLX with factors     w = code * (e4m3(scale) * (global_scale / 2688))
// in float32, in this order. 2688 is 448 * 6, the largest scale times the largest code.
// Sources: MLX 0.32.4 mx.dequantize; compressed-tensors 0.20.0, NVFP4PackedCompressor and
// MXFP4PackedCompressor; nvidia-modelopt 0.47.0, NVFP4QTensor; transformers 5.17,
// convert_moe_packed_tensors.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "convert/source/source_encoding.h"
#include "formats/base/bytes.h"
#include "formats/weights/float_blocks.h"
#include "formats/weights/format_json.h"

namespace moepack {

enum class FactorRule : std::uint8_t { kNone, kMultiplies, kDivides, kMlx };

struct FloatCodes {
  std::string_view name;  // as its makers call it
  std::uint32_t bits;     // 4: E2M1, 8: E4M3
  std::uint32_t group;    // weights that share a scale
  bool power_of_two;      // scales are E8M0, else E4M3
  FactorRule factor;
  QFormatId stored;
  bool has_minus_zero = true;  // false: code 8 is 0, as its maker decodes it
};

namespace {

constexpr FloatCodes kMxfp4Codes{"mxfp4", 4, 32, true, FactorRule::kNone, QFormatId::kMxfp4};
constexpr FloatCodes kMxfp8Codes{"mxfp8", 8, 32, true, FactorRule::kNone, QFormatId::kMxfp8};
constexpr FloatCodes kNvfp4Codes{"nvfp4", 4, 16, false, FactorRule::kNone, QFormatId::kNvfp4};
constexpr FloatCodes kNvfp4Mlx{"nvfp4", 4, 16, false, FactorRule::kMlx, QFormatId::kNvfp4Scaled};
constexpr FloatCodes kNvfp4ModelOpt{
    "nvfp4", 4, 16, false, FactorRule::kMultiplies, QFormatId::kNvfp4Scaled, false};
constexpr FloatCodes kNvfp4Packed{
    "nvfp4", 4, 16, false, FactorRule::kDivides, QFormatId::kNvfp4Scaled};

// ---- recognising --------------------------------------------------------------------------------

bool detects_mlx(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return module.codes().dtype() == DType::kU32;  // affine codes were found before
}
bool detects_packed_floats(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return module.codes().dtype() == DType::kU8 && is_named(module.codes(), ".weight_packed");
}
bool detects_modelopt(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return module.codes().dtype() == DType::kU8 && is_named(module.codes(), ".weight");
}
bool detects_openai(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return module.codes().dtype() == DType::kU8 && is_named(module.codes(), "_blocks");
}

std::vector<std::uint64_t> with_last(std::span<const std::uint64_t> shape, std::uint64_t last) {
  std::vector<std::uint64_t> out(shape.begin(), shape.end());
  out.back() = last;
  return out;
}

Status check_scale_tensor(std::span<const std::uint64_t> shape, const FloatCodes& floats,
                          const ModuleForm& form) {
  const SourceTensor& scales = form.tensors[Component::kScales];
  const std::vector<std::uint64_t> expected = with_last(shape, form.cols / floats.group);
  const DType type = scales.dtype();
  const bool is_type =
      type == DType::kU8 || type == (floats.power_of_two ? DType::kF8E8M0 : DType::kF8E4M3);
  if (is_type && has_shape(scales, expected)) return Status::ok();
  return component_shape_error(scales, floats.power_of_two ? "U8" : "F8_E4M3", expected);
}

// One factor for each matrix.
Status check_factor(const FloatCodes& floats, const ModuleForm& form, std::string_view suffix) {
  const SourceTensor& factor = form.tensors[Component::kGlobalScale];
  if (floats.factor == FactorRule::kNone)
    return refuse_other_components(form, {Component::kScales});
  MOE_RETURN_IF_ERROR(refuse_other_components(form, {Component::kScales, Component::kGlobalScale}));
  if (!factor) return missing_component(form, suffix);
  const auto found = factor.shape();
  const bool is_one = form.matrices == 1 && found.empty();
  const std::array<std::uint64_t, 1> expected{form.matrices};
  if (factor.dtype() == DType::kF32 && (is_one || has_shape(factor, expected))) return Status::ok();
  return component_shape_error(factor, "F32", expected);
}

// `shape`: the logical one. The tensors' sizes bear it out, so nothing here overflows.
Status check_floats(std::span<const std::uint64_t> shape, const FloatCodes& floats,
                    std::string_view factor_suffix, ModuleForm& form) {
  if (form.cols % floats.group != 0) {
    return corrupt(form.tensors.codes().where(),
                   std::string(floats.name) + " has groups of " + std::to_string(floats.group) +
                       " inputs, but config.json gives " + std::to_string(form.cols));
  }
  MOE_RETURN_IF_ERROR(check_scale_tensor(shape, floats, form));
  MOE_RETURN_IF_ERROR(check_factor(floats, form, factor_suffix));
  form.floats = &floats;
  form.named = {.id = floats.stored};
  form.format = {.id = QFormatId::kF32};
  const WeightFormat stored{.id = floats.stored};
  if (matrix_bytes(stored, form.rows, form.cols).has_value()) form.format = stored;
  return Status::ok();
}

// The codes of four bits that a byte or a word of `bits` holds.
Status check_nibbles(std::span<const std::uint64_t> shape, const ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  if (shape.size() >= 2 && form.cols % 2 == 0 &&
      has_shape(codes, with_last(shape, form.cols / 2))) {
    return Status::ok();
  }
  return source_shape_error(codes, with_last(shape, form.cols / 2));
}

// Mode by the width of codes and the group that the shapes give.
const FloatCodes* mlx_codes(std::uint64_t words, std::uint64_t groups, bool has_factor,
                            std::uint64_t inputs) {
  for (const FloatCodes* known : {&kMxfp4Codes, &kNvfp4Codes, &kMxfp8Codes}) {
    if (words > inputs || words * 32 != inputs * known->bits || groups > inputs ||
        groups * known->group != inputs) {
      continue;
    }
    return known == &kNvfp4Codes && has_factor ? &kNvfp4Mlx : known;
  }
  return nullptr;
}

Status check_mlx(std::span<const std::uint64_t> shape, const SourceQuantization& /*declared*/,
                 ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  const SourceTensor& scales = form.tensors[Component::kScales];
  if (shape.size() < 2 || !same_outer_shape(codes, shape)) return source_shape_error(codes, shape);
  if (!same_outer_shape(scales, shape)) return source_shape_error(scales, shape);
  const bool has_factor = static_cast<bool>(form.tensors[Component::kGlobalScale]);
  const FloatCodes* const floats =
      mlx_codes(codes.shape().back(), scales.shape().back(), has_factor, form.cols);
  if (floats != nullptr) return check_floats(shape, *floats, "global_scale", form);
  return corrupt(codes.where(), std::to_string(codes.shape().back()) + " words and " +
                                    std::to_string(scales.shape().back()) +
                                    " scales a row are no mxfp4, nvfp4 or mxfp8 of the " +
                                    std::to_string(form.cols) + " inputs that config.json gives");
}

Status check_packed_floats(std::span<const std::uint64_t> shape,
                           const SourceQuantization& /*declared*/, ModuleForm& form) {
  MOE_RETURN_IF_ERROR(check_nibbles(shape, form));
  const SourceTensor& scales = form.tensors[Component::kScales];
  if (!scales) return missing_component(form, "weight_scale");
  const bool is_nvfp4 = form.tensors[Component::kGlobalScale] || scales.dtype() == DType::kF8E4M3;
  return check_floats(shape, is_nvfp4 ? kNvfp4Packed : kMxfp4Codes, "weight_global_scale", form);
}

Status check_modelopt(std::span<const std::uint64_t> shape, const SourceQuantization& /*declared*/,
                      ModuleForm& form) {
  MOE_RETURN_IF_ERROR(check_nibbles(shape, form));
  if (!form.tensors[Component::kScales]) return missing_component(form, "weight_scale");
  return check_floats(shape, kNvfp4ModelOpt, "weight_scale_2", form);
}

// Blocks have a dimension of their own: [.., rows, cols / 32, 16].
Status check_openai(std::span<const std::uint64_t> shape, const SourceQuantization& /*declared*/,
                    ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  std::vector<std::uint64_t> expected = with_last(shape, form.cols / kMxfp4Codes.group);
  expected.push_back(kMxfp4Codes.group / 2);
  if (shape.size() < 2 || !has_shape(codes, expected)) return source_shape_error(codes, expected);
  if (!form.tensors[Component::kScales]) return missing_component(form, "_scales");
  return check_floats(shape, kMxfp4Codes, {}, form);
}

// ---- reading ------------------------------------------------------------------------------------

std::uint8_t byte_of(const std::byte* at, std::uint64_t index) {
  return std::to_integer<std::uint8_t>(at[index]);
}
std::uint8_t nibble_of(const std::byte* codes, std::uint64_t index) {
  const std::uint8_t pair = byte_of(codes, index / 2);
  return index % 2 == 0 ? pair & 15U : pair >> 4;
}

// The factors of a module's matrices as they multiply or, where negative, divide scales.
class Factors {
 public:
  explicit Factors(const ModuleForm& form) : form_(form) {}

  Status load(std::uint64_t matrix) {
    const FactorRule rule = form_.floats->factor;
    if (rule == FactorRule::kNone || (is_loaded_ && matrix == at_)) return Status::ok();
    const SourceTensor& tensor = form_.tensors[Component::kGlobalScale];
    std::array<std::byte, 4> bytes{};
    MOE_RETURN_IF_ERROR(tensor.read(4 * matrix, bytes));
    const auto stored = load_le<float>(bytes.data());
    if (!std::isfinite(stored)) return scale_error(tensor, matrix, stored);
    if (stored < 0 || (rule == FactorRule::kDivides && stored == 0)) {
      return corrupt(tensor.where(), "factor " + std::to_string(matrix) + " is not positive",
                     "download the file again");
    }
    value_ = rule == FactorRule::kDivides ? -stored
             : rule == FactorRule::kMlx   ? stored / (448.0F * 6.0F)
                                          : stored;
    at_ = matrix;
    is_loaded_ = true;
    return Status::ok();
  }
  float value() const { return value_; }

 private:
  const ModuleForm& form_;
  float value_ = 1;
  std::uint64_t at_ = 0;
  bool is_loaded_ = false;
};

float scale_of(const FloatCodes& floats, std::uint8_t code, float factor) {
  if (floats.power_of_two) return e8m0_to_f32(code);
  const float scale = f8_e4m3_values()[code];
  if (floats.factor == FactorRule::kNone) return scale;
  return factor < 0 ? scale / -factor : scale * factor;
}

// One row in each of the forms. `codes` and `scales` are the row's.
void decode_floats(const ModuleForm& form, const std::byte* codes, const std::byte* scales,
                   float factor, std::byte* out) {
  const FloatCodes& floats = *form.floats;
  const std::array<float, 256>& wide = f8_e4m3_values();
  std::array<float, 16> narrow = kE2m1;
  if (!floats.has_minus_zero) narrow[8] = 0;
  for (std::uint64_t first = 0; first < form.cols; first += floats.group) {
    const float scale = scale_of(floats, byte_of(scales, first / floats.group), factor);
    for (std::uint64_t c = first; c < first + floats.group; ++c) {
      const float code = floats.bits == 4 ? narrow[nibble_of(codes, c)] : wide[byte_of(codes, c)];
      store_le(out + 4 * c, code * scale);
    }
  }
}

// ggml's order: byte j of `weights` nibbles holds weights j and j + weights / 2.
void pack_halves(const std::byte* codes, std::uint64_t first, std::uint64_t weights,
                 std::byte* out) {
  for (std::uint64_t j = 0; j < weights / 2; ++j) {
    const std::uint32_t low = nibble_of(codes, first + j);
    const std::uint32_t high = nibble_of(codes, first + weights / 2 + j);
    out[j] = static_cast<std::byte>(low | high << 4);
  }
}

void pack_mxfp4(const ModuleForm& form, const std::byte* codes, const std::byte* scales,
                std::byte* out) {
  for (std::uint64_t block = 0; block < form.cols / 32; ++block, out += 17) {
    out[0] = scales[block];
    pack_halves(codes, 32 * block, 32, out + 1);
  }
}

void pack_nvfp4(const ModuleForm& form, const std::byte* codes, const std::byte* scales,
                std::byte* out) {
  for (std::uint64_t group = 0; group < form.cols / 16; ++group) {
    std::byte* const block = out + group / 4 * 36;
    block[group % 4] = scales[group];
    pack_halves(codes, 16 * group, 16, block + 4 + 8 * (group % 4));
  }
}

void pack_mxfp8(const ModuleForm& form, const std::byte* codes, const std::byte* scales,
                std::byte* out) {
  for (std::uint64_t block = 0; block < form.cols / 32; ++block, out += 33) {
    out[0] = scales[block];
    std::copy_n(codes + 32 * block, 32, out + 1);
  }
}

void pack_nvfp4_scaled(const ModuleForm& form, const std::byte* codes, const std::byte* scales,
                       float factor, std::byte* out) {
  for (std::uint64_t block = 0; block < form.cols / kNvfp4ScaledWeights; ++block, out += 76) {
    store_le(out, factor);
    std::copy_n(scales + 8 * block, 8, out + 4);
    std::copy_n(codes + 64 * block, 64, out + 12);
  }
}

// Refuses scales that are no numbers, and those that ggml's blocks take for another number.
Status check_scales(const ModuleForm& form, std::span<const std::byte> scales,
                    std::uint64_t first) {
  const FloatCodes& floats = *form.floats;
  const SourceTensor& tensor = form.tensors[Component::kScales];
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::uint8_t code = byte_of(scales.data(), i);
    const bool is_nan = floats.power_of_two ? code == 255 : (code & 0x7fU) == 0x7fU;
    if (is_nan) return scale_error(tensor, first + i, std::nanf(""));
    if (form.format.id != QFormatId::kNvfp4 || code < 128) continue;
    return corrupt(tensor.where(),
                   "scale " + std::to_string(first + i) +
                       " is negative, which nvfp4 blocks cannot "
                       "hold",
                   "name another --expert-format, which decodes such weights");
  }
  return Status::ok();
}

void write_row(const ModuleForm& form, const std::byte* codes, const std::byte* scales,
               float factor, std::byte* out) {
  switch (form.format.id) {
    case QFormatId::kMxfp4:
      return pack_mxfp4(form, codes, scales, out);
    case QFormatId::kNvfp4:
      return pack_nvfp4(form, codes, scales, out);
    case QFormatId::kMxfp8:
      return pack_mxfp8(form, codes, scales, out);
    case QFormatId::kNvfp4Scaled:
      return pack_nvfp4_scaled(form, codes, scales, factor, out);
    default:
      return decode_floats(form, codes, scales, factor, out);
  }
}

Status read_floats(const ModuleForm& form, Component /*codes*/, std::uint64_t begin,
                   std::uint64_t end, std::span<std::byte> out) {
  const std::uint64_t code_bytes = form.cols * form.floats->bits / 8;
  const std::uint64_t scale_bytes = form.cols / form.floats->group;
  const std::uint64_t row_bytes = out.size() / (end - begin);
  std::vector<std::byte> codes((end - begin) * code_bytes);
  std::vector<std::byte> scales((end - begin) * scale_bytes);
  MOE_RETURN_IF_ERROR(form.tensors.codes().read(begin * code_bytes, codes));
  MOE_RETURN_IF_ERROR(form.tensors[Component::kScales].read(begin * scale_bytes, scales));
  MOE_RETURN_IF_ERROR(check_scales(form, scales, begin * scale_bytes));
  Factors factors(form);
  for (std::uint64_t row = begin; row < end; ++row) {
    MOE_RETURN_IF_ERROR(factors.load(row / form.rows));
    const std::uint64_t at = row - begin;
    write_row(form, codes.data() + at * code_bytes, scales.data() + at * scale_bytes,
              factors.value(), out.data() + at * row_bytes);
  }
  return Status::ok();
}

constexpr std::array<std::string_view, 1> kMlxMethods{""};
constexpr std::array<std::string_view, 1> kPackedMethods{"compressed-tensors"};
constexpr std::array<std::string_view, 1> kModelOptMethod{"modelopt"};
constexpr std::array<std::string_view, 1> kOpenAiMethods{"mxfp4"};

constexpr std::array<SourceSuffix, 3> kMlxSuffixes{{{".weight", Component::kCodes},
                                                    {".scales", Component::kScales},
                                                    {".global_scale", Component::kGlobalScale}}};
constexpr std::array<SourceSuffix, 4> kPackedFloatSuffixes{
    {{".weight_packed", Component::kCodes},
     {".weight_scale", Component::kScales},
     {".weight_global_scale", Component::kGlobalScale},
     {".input_global_scale", std::nullopt}}};
constexpr std::array<SourceSuffix, 4> kModelOptSuffixes{
    {{".weight", Component::kCodes},
     {".weight_scale", Component::kScales},
     {".weight_scale_2", Component::kGlobalScale},
     {".input_scale", std::nullopt}}};
constexpr std::array<SourceSuffix, 2> kOpenAiSuffixes{
    {{"_blocks", Component::kCodes}, {"_scales", Component::kScales}}};

}  // namespace

const SourceEncoding kMlxFloatEncoding{.name = "MLX float",
                                       .suffixes = kMlxSuffixes,
                                       .methods = kMlxMethods,
                                       .detects = detects_mlx,
                                       .check = check_mlx,
                                       .read_rows = read_floats};
const SourceEncoding kPackedFloatEncoding{.name = "compressed-tensors packed float",
                                          .suffixes = kPackedFloatSuffixes,
                                          .methods = kPackedMethods,
                                          .detects = detects_packed_floats,
                                          .check = check_packed_floats,
                                          .read_rows = read_floats};
const SourceEncoding kModelOptFloatEncoding{.name = "NVFP4",
                                            .suffixes = kModelOptSuffixes,
                                            .methods = kModelOptMethod,
                                            .detects = detects_modelopt,
                                            .check = check_modelopt,
                                            .read_rows = read_floats};
const SourceEncoding kOpenAiFloatEncoding{.name = "MXFP4",
                                          .suffixes = kOpenAiSuffixes,
                                          .methods = kOpenAiMethods,
                                          .detects = detects_openai,
                                          .check = check_openai,
                                          .read_rows = read_floats};

}  // namespace moepack
