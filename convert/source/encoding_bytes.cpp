// A byte for each weight, multiplied by the scale of its block, its row, its group of inputs or the
// whole matrix. FP8 is E4M3: DeepSeek's, Qwen's and MiniMax's checkpoints (weight_scale_inv, which
// multiplies in spite of its name), compressed-tensors' float-quantized and ModelOpt's FP8
// (weight_scale). INT8 is compressed-tensors' int-quantized, with or without a zero beside each
// scale. Blocks at the edges are cut off, so that block o / block_rows holds row o whatever the
// number of rows.
// Stored: FP8 as blocks of 128 with their scale where blocks end between theirs; INT8 without zeros
// as affine codes, whose groups then repeat a scale. Both mean the same weights bit for bit.
// Source: compressed-tensors 0.20.0, FP8BlockDequantizer, FloatQuantizationCompressor and
// IntQuantizationCompressor.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "convert/source/source_encoding.h"
#include "formats/base/bytes.h"
#include "formats/weights/float_blocks.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

bool detects_fp8(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return module.codes().dtype() == DType::kF8E4M3;
}
bool detects_int8(const SourceModule& module, const SourceQuantization& /*declared*/) {
  return module.codes().dtype() == DType::kI8;
}

// The size of a block, by the dimensions of the scales behind those that count matrices. False when
// they fit no size.
bool set_grid(std::span<const std::uint64_t> grid, const SourceQuantization& declared,
              ModuleForm& form) {
  const auto fits = [&](std::uint64_t rows, std::uint64_t cols) {
    if (rows == 0 || cols == 0 || grid.size() != 2 || grid[0] != div_up(form.rows, rows) ||
        grid[1] != div_up(form.cols, cols)) {
      return false;
    }
    form.block_rows = rows;
    form.block_cols = cols;
    return true;
  };
  if (fits(declared.block_rows, declared.block_cols) || fits(1, form.cols) ||
      fits(1, declared.group_size)) {
    return true;
  }
  form.block_cols = form.cols;
  form.block_rows = 1;
  if (grid.size() == 1 && grid[0] == form.rows && form.rows != 1) return true;
  form.block_rows = form.rows;
  return grid.size() <= 2 &&
         std::all_of(grid.begin(), grid.end(), [](std::uint64_t length) { return length == 1; });
}

Status check_grid(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                  ModuleForm& form) {
  const SourceTensor& scales = form.tensors[Component::kScales];
  const auto found = scales.shape();
  const std::size_t outer = shape.size() - 2;
  const bool has_outer =
      found.size() >= outer && std::equal(shape.begin(), shape.end() - 2, found.begin());
  if (has_outer && set_grid(found.subspan(outer), declared, form)) return Status::ok();
  const std::string blocks = declared.block_rows == 0
                                 ? std::string("config.json gives no weight_block_size")
                                 : "config.json gives blocks of " +
                                       std::to_string(declared.block_rows) + " x " +
                                       std::to_string(declared.block_cols);
  return corrupt(scales.where(), "shape " + shape_text(found) + " fits no scales of a weight " +
                                     shape_text(shape) + "; " + blocks);
}

Status check_bytes(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                   ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  const SourceTensor& scales = form.tensors[Component::kScales];
  if (!has_shape(codes, shape) || shape.size() < 2) return source_shape_error(codes, shape);
  if (!scales) {
    return missing_component(form, declared.method == "fp8" ? "weight_scale_inv" : "weight_scale");
  }
  MOE_RETURN_IF_ERROR(check_float_scales(scales));
  form.format = {.id = QFormatId::kF32};
  return check_grid(shape, declared, form);
}

Status check_fp8(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                 ModuleForm& form) {
  MOE_RETURN_IF_ERROR(refuse_other_components(form, {Component::kScales}));
  MOE_RETURN_IF_ERROR(check_bytes(shape, declared, form));
  const bool is_whole = form.block_cols % kF8Weights == 0 || form.block_cols >= form.cols;
  if (is_whole && form.cols % kF8Weights == 0) form.format.id = QFormatId::kF8E4M3;
  return Status::ok();
}

// The affine format in which each group's inputs share a scale of the source, if there is one.
WeightFormat affine_of_int8(const ModuleForm& form) {
  for (std::uint32_t group : {128U, 64U, 32U}) {
    const bool is_whole = form.block_cols % group == 0 || form.block_cols >= form.cols;
    if (!is_whole || form.tensors[Component::kZeros]) continue;
    if (const auto affine = affine_format_of(form, group)) return *affine;
  }
  return {.id = QFormatId::kF32};
}

Status check_int8(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                  ModuleForm& form) {
  MOE_RETURN_IF_ERROR(refuse_other_components(form, {Component::kScales, Component::kZeros}));
  MOE_RETURN_IF_ERROR(check_bytes(shape, declared, form));
  form.bits = 8;
  form.format = affine_of_int8(form);
  const SourceTensor& zeros = form.tensors[Component::kZeros];
  const auto grid = form.tensors[Component::kScales].shape();
  if (!zeros || (zeros.dtype() == DType::kI8 && has_shape(zeros, grid))) return Status::ok();
  return component_shape_error(zeros, "I8", grid);
}

// The scales of the blocks that cross one row, and their zeros.
class ScaleRow {
 public:
  explicit ScaleRow(const ModuleForm& form)
      : form_(form),
        tensor_(form.tensors[Component::kScales]),
        zero_tensor_(form.tensors[Component::kZeros]),
        grid_rows_(div_up(form.rows, form.block_rows)),
        values_(div_up(form.cols, form.block_cols)),
        bytes_(values_.size() * dtype_bits(tensor_.dtype()) / 8),
        zeros_(values_.size()) {}

  // `row`: counted over all matrices.
  Status load(std::uint64_t row) {
    const std::uint64_t wanted =
        row / form_.rows * grid_rows_ + row % form_.rows / form_.block_rows;
    if (is_loaded_ && wanted == at_) return Status::ok();
    MOE_RETURN_IF_ERROR(tensor_.read(wanted * bytes_.size(), bytes_));
    const std::size_t size = bytes_.size() / values_.size();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = load_scale(tensor_.dtype(), bytes_.data() + i * size);
      if (!std::isfinite(values_[i])) {
        return scale_error(tensor_, wanted * values_.size() + i, values_[i]);
      }
    }
    if (zero_tensor_) MOE_RETURN_IF_ERROR(zero_tensor_.read(wanted * zeros_.size(), zeros_));
    at_ = wanted;
    is_loaded_ = true;
    return Status::ok();
  }
  std::span<const float> values() const { return values_; }
  float of_column(std::uint64_t column) const { return values_[column / form_.block_cols]; }
  // As it lies in the file.
  std::uint16_t stored(std::uint64_t column) const {
    return load_le<std::uint16_t>(bytes_.data() + 2 * (column / form_.block_cols));
  }
  std::int32_t zero(std::size_t block) const { return std::to_integer<std::int8_t>(zeros_[block]); }

 private:
  const ModuleForm& form_;
  const SourceTensor& tensor_;
  const SourceTensor& zero_tensor_;
  std::uint64_t grid_rows_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> zeros_;  // 0 where there are none
  std::uint64_t at_ = 0;
  bool is_loaded_ = false;
};

// What a code of the encoding means before it is scaled.
float byte_value(bool is_fp8, std::byte code, std::int32_t zero) {
  if (is_fp8) return f8_e4m3_values()[std::to_integer<std::uint8_t>(code)];
  return static_cast<float>(std::to_integer<std::int8_t>(code) - zero);
}

void decode_bytes(const ModuleForm& form, std::span<const std::byte> codes, const ScaleRow& scales,
                  std::byte* out) {
  const bool is_fp8 = form.encoding == &kFp8Encoding;
  for (std::size_t block = 0; block < scales.values().size(); ++block) {
    const float scale = scales.values()[block];
    const std::uint64_t stop = std::min(form.cols, (block + 1) * form.block_cols);
    for (std::uint64_t c = block * form.block_cols; c < stop; ++c) {
      store_le(out + 4 * c, byte_value(is_fp8, codes[c], scales.zero(block)) * scale);
    }
  }
}

void pack_f8(std::span<const std::byte> codes, const ScaleRow& scales, std::byte* out) {
  for (std::uint64_t c = 0; c < codes.size(); c += kF8Weights, out += 4 + kF8Weights) {
    store_le(out, scales.of_column(c));
    std::copy_n(codes.data() + c, kF8Weights, out + 4);
  }
}

Status read_bytes(const ModuleForm& form, Component component, std::uint64_t begin,
                  std::uint64_t end, std::span<std::byte> out) {
  const std::uint64_t row_bytes = out.size() / (end - begin);
  const bool has_codes = component == Component::kCodes;
  std::vector<std::byte> codes(has_codes ? (end - begin) * form.cols : 0);
  if (has_codes) MOE_RETURN_IF_ERROR(form.tensors.codes().read(begin * form.cols, codes));
  ScaleRow scales(form);
  for (std::uint64_t row = begin; row < end; ++row) {
    MOE_RETURN_IF_ERROR(scales.load(row));
    const auto from = std::span(codes).subspan(has_codes ? (row - begin) * form.cols : 0);
    std::byte* const to = out.data() + (row - begin) * row_bytes;
    if (form.format.id == QFormatId::kF32) {
      decode_bytes(form, from, scales, to);
    } else if (form.format.id == QFormatId::kF8E4M3) {
      pack_f8(from.first(form.cols), scales, to);
    } else if (has_codes) {  // -128 becomes 0
      for (std::uint64_t c = 0; c < form.cols; ++c) to[c] = from[c] ^ std::byte{0x80};
    } else {
      const std::uint64_t groups = row_bytes / 2;
      for (std::uint64_t g = 0; g < groups; ++g) {
        store_le(to + 2 * g, scales.stored(g * form.format.group_size));
      }
    }
  }
  if (component != Component::kBiases) return Status::ok();
  return scales_to_biases(form, row_bytes / 2, begin, out);
}

// Factors of activations, and of cached keys and values, change no weight.
constexpr std::array<SourceSuffix, 9> kByteSuffixes{{{".weight", Component::kCodes},
                                                     {".weight_scale_inv", Component::kScales},
                                                     {".weight_scale", Component::kScales},
                                                     {".weight_zero_point", Component::kZeros},
                                                     {".input_scale", std::nullopt},
                                                     {".input_zero_point", std::nullopt},
                                                     {".input_global_scale", std::nullopt},
                                                     {".k_scale", std::nullopt},
                                                     {".v_scale", std::nullopt}}};
constexpr std::array<std::string_view, 4> kFp8Methods{"fp8", "compressed-tensors", "modelopt", ""};
constexpr std::array<std::string_view, 2> kInt8Methods{"compressed-tensors", ""};

}  // namespace

const SourceEncoding kFp8Encoding{.name = "FP8",
                                  .suffixes = kByteSuffixes,
                                  .methods = kFp8Methods,
                                  .detects = detects_fp8,
                                  .check = check_fp8,
                                  .read_rows = read_bytes};
const SourceEncoding kInt8Encoding{.name = "INT8",
                                   .suffixes = kByteSuffixes,
                                   .methods = kInt8Methods,
                                   .detects = detects_int8,
                                   .check = check_int8,
                                   .read_rows = read_bytes};

}  // namespace moepack
