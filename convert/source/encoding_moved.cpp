// Plain numbers that lie in another order than the matrices they make: [inputs, outputs] instead of
// [outputs, inputs], and two matrices whose columns alternate (gpt-oss). Which modules do is told
// by the family's table, not by the tensors.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "convert/source/source_encoding.h"

namespace moepack {
namespace {

// Columns of the tensor in a row of its own.
std::uint64_t tensor_columns(const ModuleForm& form) { return form.tensors.codes().shape().back(); }

std::uint64_t value_bytes(const ModuleForm& form) {
  return matrix_bytes(form.format, 1, 1).value_or(MatrixBytes{}).codes();
}

// Rows [begin, end) of the matrix whose tensor begins at byte `base`: `cols` runs of columns.
Status read_transposed_matrix(const ModuleForm& form, std::uint64_t base, std::uint64_t begin,
                              std::uint64_t end, std::span<std::byte> out) {
  const std::uint64_t bytes = value_bytes(form);
  const std::uint64_t step = form.column_step;
  std::vector<std::byte> run(((end - begin - 1) * step + 1) * bytes);
  for (std::uint64_t col = 0; col < form.cols; ++col) {
    const std::uint64_t first = form.first_column + begin * step;
    const std::uint64_t at = base + (col * tensor_columns(form) + first) * bytes;
    MOE_RETURN_IF_ERROR(form.tensors.codes().read(at, run));
    for (std::uint64_t row = 0; row < end - begin; ++row) {
      std::memcpy(out.data() + (row * form.cols + col) * bytes, run.data() + row * step * bytes,
                  bytes);
    }
  }
  return Status::ok();
}

Status read_transposed(const ModuleForm& form, Component /*component*/, std::uint64_t begin,
                       std::uint64_t end, std::span<std::byte> out) {
  const std::uint64_t bytes = value_bytes(form);
  const std::uint64_t matrix_size = form.cols * tensor_columns(form) * bytes;
  while (begin < end) {
    const std::uint64_t matrix = begin / form.rows;
    const std::uint64_t first = begin % form.rows;
    const std::uint64_t count = std::min(end - begin, form.rows - first);
    const std::uint64_t size = count * form.cols * bytes;
    MOE_RETURN_IF_ERROR(
        read_transposed_matrix(form, matrix * matrix_size, first, first + count, out.first(size)));
    out = out.subspan(size);
    begin += count;
  }
  return Status::ok();
}

Status read_picked(const ModuleForm& form, Component /*component*/, std::uint64_t begin,
                   std::uint64_t end, std::span<std::byte> out) {
  const std::uint64_t bytes = value_bytes(form);
  std::vector<std::byte> row(tensor_columns(form) * bytes);
  for (std::uint64_t r = begin; r < end; ++r) {
    MOE_RETURN_IF_ERROR(form.tensors.codes().read(r * row.size(), row));
    for (std::uint64_t col = 0; col < form.cols; ++col) {
      const std::uint64_t from = form.first_column + col * form.column_step;
      std::memcpy(out.data() + ((r - begin) * form.cols + col) * bytes, row.data() + from * bytes,
                  bytes);
    }
  }
  return Status::ok();
}

const SourceEncoding kTransposed{.name = "transposed",
                                 .suffixes = {},
                                 .detects = nullptr,
                                 .check = nullptr,
                                 .read_rows = read_transposed,
                                 .only_moves = true};
const SourceEncoding kPickedColumns{.name = "interleaved",
                                    .suffixes = {},
                                    .detects = nullptr,
                                    .check = nullptr,
                                    .read_rows = read_picked,
                                    .only_moves = true};

ModuleForm moved_form(const SourceEncoding& encoding, ModuleForm form, std::uint64_t rows,
                      std::uint64_t cols, std::uint64_t first, std::uint64_t step) {
  form.encoding = &encoding;
  form.rows = rows;
  form.cols = cols;
  form.first_column = first;
  form.column_step = step;
  return form;
}

}  // namespace

ModuleForm transposed_form(ModuleForm plain, std::uint64_t rows, std::uint64_t cols,
                           std::uint64_t first, std::uint64_t step) {
  return moved_form(kTransposed, std::move(plain), rows, cols, first, step);
}

ModuleForm picked_columns_form(ModuleForm plain, std::uint64_t rows, std::uint64_t cols,
                               std::uint64_t first, std::uint64_t step) {
  return moved_form(kPickedColumns, std::move(plain), rows, cols, first, step);
}

}  // namespace moepack
