// kv_b_proj of latent attention as llama.cpp stores it, in two tensors: attn_k_b has each head's
// rows of keys, transposed, and attn_v_b those of values (its conversion/deepseek.py).
#include <algorithm>
#include <cstring>
#include <vector>

#include "convert/source/split_heads.h"
#include "formats/weights/format_json.h"
#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

// Where a form of two tensors has that of the values; no plain format has an order of inputs.
constexpr Component kHeadValues = Component::kOrder;

std::uint64_t bytes_of(const WeightFormat& format, std::uint64_t values) {
  return matrix_bytes(format, 1, values).value_or(MatrixBytes{}).codes();
}

// `count` values of the tensor from value `first` on, both at rows' ends, in the format `wanted`.
Status read_values(const SourceTensor& tensor, const WeightFormat& wanted, std::uint64_t first,
                   std::uint64_t count, std::span<std::byte> out) {
  const WeightFormat own = tensor.format().value_or(WeightFormat{});
  if (own == wanted) return tensor.read(bytes_of(own, first), out);
  std::vector<std::byte> stored(bytes_of(own, count));
  MOE_RETURN_IF_ERROR(tensor.read(bytes_of(own, first), stored));
  std::vector<float> decoded(count);
  // Rows follow each other without a gap, so that several of them are one.
  decode_row(QMatrixView{.format = own,
                         .rows = 1,
                         .cols = count,
                         .data = affine_components<const std::byte*>(stored.data())},
             0, decoded);
  std::memcpy(out.data(), decoded.data(), out.size());
  return Status::ok();
}

// Rows [begin, end) of the key of `head`: columns of its matrix.
Status read_key_rows(const ModuleForm& form, std::uint64_t head, std::uint64_t begin,
                     std::uint64_t end, std::span<std::byte> out) {
  const std::uint64_t key_rows = form.tensors.codes().shape()[2];
  const std::uint64_t bytes = bytes_of(form.format, 1);
  const std::uint64_t values = form.cols * key_rows;
  std::vector<std::byte> matrix(values * bytes);
  MOE_RETURN_IF_ERROR(
      read_values(form.tensors.codes(), form.format, head * values, values, matrix));
  for (std::uint64_t row = begin; row < end; ++row) {
    for (std::uint64_t col = 0; col < form.cols; ++col) {
      std::memcpy(out.data() + ((row - begin) * form.cols + col) * bytes,
                  matrix.data() + (col * key_rows + row) * bytes, bytes);
    }
  }
  return Status::ok();
}

Status read_split_heads(const ModuleForm& form, Component /*component*/, std::uint64_t begin,
                        std::uint64_t end, std::span<std::byte> out) {
  const std::uint64_t key_rows = form.tensors.codes().shape()[2];
  const std::uint64_t value_rows = form.tensors[kHeadValues].shape()[1];
  const std::uint64_t head_rows = key_rows + value_rows;
  const std::uint64_t row_bytes = bytes_of(form.format, form.cols);
  while (begin < end) {
    const std::uint64_t head = begin / head_rows;
    const std::uint64_t row = begin % head_rows;
    const bool is_key = row < key_rows;
    const std::uint64_t count = std::min(end - begin, (is_key ? key_rows : head_rows) - row);
    const std::span<std::byte> part = out.first(count * row_bytes);
    if (is_key) {
      MOE_RETURN_IF_ERROR(read_key_rows(form, head, row, row + count, part));
    } else {
      const std::uint64_t first = (head * value_rows + row - key_rows) * form.cols;
      MOE_RETURN_IF_ERROR(
          read_values(form.tensors[kHeadValues], form.format, first, count * form.cols, part));
    }
    out = out.subspan(part.size());
    begin += count;
  }
  return Status::ok();
}

const SourceEncoding kSplitHeads{.name = "keys and values apart",
                                 .suffixes = {},
                                 .detects = nullptr,
                                 .check = nullptr,
                                 .read_rows = read_split_heads,
                                 .only_moves = true};
const SourceEncoding kDecodedSplitHeads{.name = "blocks of keys and of values",
                                        .suffixes = {},
                                        .detects = nullptr,
                                        .check = nullptr,
                                        .read_rows = read_split_heads};

Status check_half(const SourceTensor& tensor, const std::vector<std::uint64_t>& shape) {
  if (!has_shape(tensor, shape)) return source_shape_error(tensor, shape);
  if (tensor.format().has_value()) return Status::ok();
  return unsupported(tensor.where(), "dtype " + tensor.type_name() + " cannot be converted");
}

}  // namespace

std::optional<HeadRows> split_head_rows(std::string_view name) {
  if (name.ends_with("attn_k_b.weight")) return HeadRows::kKeys;
  if (name.ends_with("attn_v_b.weight")) return HeadRows::kValues;
  return std::nullopt;
}

Result<ModuleForm> split_heads_form(const SourceTensor& keys, const SourceTensor& values,
                                    const SplitHeads& sizes) {
  if (!values) {
    return not_found(keys.where(), "has the rows of keys, but attn_v_b.weight beside it is missing",
                     "the model is incomplete; download it again");
  }
  MOE_RETURN_IF_ERROR(check_half(keys, {sizes.heads, sizes.cols, sizes.key_rows}));
  MOE_RETURN_IF_ERROR(check_half(values, {sizes.heads, sizes.value_rows, sizes.cols}));
  ModuleForm form{.tensors = {}, .format = *keys.format(), .named = {}};
  MOE_RETURN_IF_ERROR(form.tensors.add(Component::kCodes, keys));
  MOE_RETURN_IF_ERROR(form.tensors.add(kHeadValues, values));
  form.rows = sizes.heads * (sizes.key_rows + sizes.value_rows);
  form.cols = sizes.cols;
  const bool is_plain = qformat_info(form.format.id).kind == QKind::kPlain;
  const bool moves = is_plain && form.format == *values.format();
  form.encoding = moves ? &kSplitHeads : &kDecodedSplitHeads;
  if (!moves) form.format = {.id = QFormatId::kF32};
  form.named = form.format;
  return form;
}

}  // namespace moepack
