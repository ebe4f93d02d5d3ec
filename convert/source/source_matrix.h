// A matrix of the source: where its bytes lie, in which stored format its rows are read, and how.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convert/source/row_gather.h"
#include "convert/source/source_encoding.h"
#include "convert/source/source_tensor.h"
#include "formats/base/status.h"
#include "formats/config/architecture.h"
#include "formats/config/model_config.h"
#include "formats/weights/qformat.h"

namespace moepack {

// Bytes [begin, begin + bytes) of a tensor.
struct TensorSlice {
  SourceTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// y = W x with W [rows, cols]. Of an encoding that stores the bytes of `format` each component is
// row-major, and contiguous unless there are `runs`; the rows of every other encoding are made.
struct SourceMatrix {
  WeightFormat format;  // in which rows are read
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  // By component of the encoding. With `encoded` the place of the codes, and the tensors and sizes
  // of the others.
  Components<TensorSlice> slices = {};
  // nullptr, or which rows of its tensors make the matrix; slices then begin at 0 and count only
  // the bytes of these rows.
  std::shared_ptr<const RowRuns> runs = nullptr;
  // nullptr: the slices hold the bytes of `format`; else the module whose encoding makes them.
  std::shared_ptr<const ModuleForm> encoded = nullptr;
  std::uint64_t first_row = 0;  // with `encoded`: of the module, where the matrix or runs begin

  std::uint64_t bytes() const;  // in the source
  bool is_decoded() const { return encoded != nullptr && encoded->is_decoded(); }
  // Bytes of a row of a component of `format`.
  std::uint64_t row_bytes(Component component) const;
  // Fills `out` with rows [begin, end) of a component of `format`. Any number of threads.
  Status read_rows(Component component, std::uint64_t begin, std::uint64_t end,
                   std::span<std::byte> out) const;
};

// What config.json says about quantization, by canonical module name.
class DeclaredFormats {
 public:
  DeclaredFormats(const Architecture& names, const ParsedConfig& config);

  // What a method that names itself leaves to the configuration.
  const SourceQuantization& source() const { return source_; }

  // kCorrupt when the declaration for the module contradicts what its shapes gave.
  Status check(const ModuleForm& form) const;

 private:
  const Architecture* names_;
  SourceQuantization source_;
  std::optional<WeightFormat> default_;
  std::map<std::string, std::optional<WeightFormat>, std::less<>> overrides_;
};

// Matrix `index` of the module, which holds consecutive [form.rows, form.cols] matrices; rows
// [row_begin, row_begin + row_count) of it.
SourceMatrix slice_matrix(const std::shared_ptr<const ModuleForm>& form, std::uint64_t index,
                          std::uint64_t row_begin, std::uint64_t row_count);
// The same matrix with f32 rows; `matrix` has an encoding that makes rows.
SourceMatrix decoded_matrix(const SourceMatrix& matrix);
// The rows `runs` of `whole`, which they must not leave; it has none itself.
SourceMatrix gather_rows(const SourceMatrix& whole, RowRuns runs);

}  // namespace moepack
