// FP8: a byte of E4M3 for each weight, multiplied by the scale of its block (DeepSeek's and Qwen's
// checkpoints: weight_scale_inv, which multiplies in spite of its name), of its row or of the whole
// matrix (compressed-tensors' float-quantized: weight_scale). Blocks at the edges are cut off, so
// that block o / block_rows holds row o whatever the number of rows.
// Source: compressed-tensors 0.20.0, FP8BlockDequantizer and FloatQuantizationCompressor.
#include <algorithm>
#include <array>
#include <vector>

#include "convert/source/source_encoding.h"
#include "formats/base/bytes.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

bool detects_fp8(const SourceModule& module) { return module.codes().dtype() == DType::kF8E4M3; }

std::uint64_t blocks_of(std::uint64_t length, std::uint64_t block) {
  return length / block + (length % block != 0 ? 1 : 0);
}

// Whether the scales are one for each [rows, cols] of the matrices of `shape`; then these are set.
bool has_grid(std::span<const std::uint64_t> scales, std::span<const std::uint64_t> shape,
              std::uint64_t rows, std::uint64_t cols, ModuleForm& form) {
  if (rows == 0 || cols == 0 || scales.size() != shape.size() || shape.size() < 2) return false;
  const std::size_t outer = shape.size() - 2;
  if (!std::equal(scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(outer),
                  shape.begin()) ||
      scales[outer] != blocks_of(form.rows, rows) ||
      scales[outer + 1] != blocks_of(form.cols, cols)) {
    return false;
  }
  form.block_rows = rows;
  form.block_cols = cols;
  return true;
}

Status check_fp8(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                 ModuleForm& form) {
  const SourceTensor& codes = form.tensors.codes();
  const SourceTensor& scales = form.tensors[Component::kScales];
  if (!scales) {
    return not_found(codes.where(), "holds FP8 codes, but its weight_scale_inv is missing",
                     "the checkpoint is incomplete; download it again");
  }
  for (Component c : {Component::kBiases, Component::kZeros}) {
    if (form.tensors[c]) {
      return corrupt(form.tensors[c].where(), "belongs to a weight in FP8, which needs none");
    }
  }
  const auto found = codes.shape();
  if (!std::equal(found.begin(), found.end(), shape.begin(), shape.end())) {
    return source_shape_error(codes, shape);
  }
  MOE_RETURN_IF_ERROR(check_float_scales(scales));
  form.format = {.id = QFormatId::kF32};
  const auto grid = scales.shape();
  if (has_grid(grid, shape, declared.block_rows, declared.block_cols, form) ||
      has_grid(grid, shape, 1, form.cols, form)) {
    return Status::ok();
  }
  const bool is_one = grid.empty() || (grid.size() == 1 && grid[0] == 1);
  if (is_one && shape.size() == 2) {
    form.block_rows = form.rows;
    form.block_cols = form.cols;
    return Status::ok();
  }
  const std::string blocks = declared.block_rows == 0
                                 ? std::string("config.json gives no weight_block_size")
                                 : "config.json gives blocks of " +
                                       std::to_string(declared.block_rows) + " x " +
                                       std::to_string(declared.block_cols);
  return corrupt(scales.where(), "shape " + shape_text(grid) + " fits no scales of a weight " +
                                     shape_text(shape) + "; " + blocks);
}

// The scales of the blocks that cross one row.
class ScaleRow {
 public:
  explicit ScaleRow(const ModuleForm& form)
      : form_(form),
        tensor_(form.tensors[Component::kScales]),
        grid_rows_(blocks_of(form.rows, form.block_rows)),
        values_(blocks_of(form.cols, form.block_cols)),
        bytes_(values_.size() * dtype_bits(tensor_.dtype()) / 8) {}

  // `row`: counted over all matrices.
  Status load(std::uint64_t row) {
    const std::uint64_t wanted =
        row / form_.rows * grid_rows_ + row % form_.rows / form_.block_rows;
    if (is_loaded_ && wanted == at_) return Status::ok();
    MOE_RETURN_IF_ERROR(tensor_.read(wanted * bytes_.size(), bytes_));
    const std::size_t size = bytes_.size() / values_.size();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = load_plain_float(tensor_.dtype(), bytes_.data() + i * size);
    }
    at_ = wanted;
    is_loaded_ = true;
    return Status::ok();
  }
  std::span<const float> values() const { return values_; }

 private:
  const ModuleForm& form_;
  const SourceTensor& tensor_;
  std::uint64_t grid_rows_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
  std::uint64_t at_ = 0;
  bool is_loaded_ = false;
};

Status read_fp8(const ModuleForm& form, Component /*codes*/, std::uint64_t begin, std::uint64_t end,
                std::span<std::byte> out) {
  std::vector<std::byte> codes((end - begin) * form.cols);
  MOE_RETURN_IF_ERROR(form.tensors.codes().read(begin * form.cols, codes));
  ScaleRow scales(form);
  for (std::uint64_t row = begin; row < end; ++row) {
    MOE_RETURN_IF_ERROR(scales.load(row));
    const std::uint64_t first = (row - begin) * form.cols;
    for (std::size_t block = 0; block < scales.values().size(); ++block) {
      const float scale = scales.values()[block];
      const std::uint64_t stop = std::min(form.cols, (block + 1) * form.block_cols);
      for (std::uint64_t c = block * form.block_cols; c < stop; ++c) {
        const float value = f8_e4m3_to_f32(std::to_integer<std::uint8_t>(codes[first + c]));
        store_le(out.data() + 4 * (first + c), value * scale);
      }
    }
  }
  return Status::ok();
}

constexpr std::array<SourceSuffix, 4> kFp8Suffixes{{{".weight", Component::kCodes},
                                                    {".weight_scale_inv", Component::kScales},
                                                    {".weight_scale", Component::kScales},
                                                    {".input_scale", std::nullopt}}};

}  // namespace

const SourceEncoding kFp8Encoding{.name = "fp8",
                                  .suffixes = kFp8Suffixes,
                                  .detects = detects_fp8,
                                  .check = check_fp8,
                                  .read_rows = read_fp8};

}  // namespace moepack
