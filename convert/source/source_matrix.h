// Where the bytes of a source matrix lie and in which weight format they are: plain floats, ggml's
// blocks, or MLX's affine codes whose width and group follow from the shapes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convert/source/row_gather.h"
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

// y = W x with W [rows, cols]; each component is row-major, and contiguous unless there are `runs`.
struct SourceMatrix {
  WeightFormat format;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  Components<TensorSlice> slices = {};  // empty for components that the format lacks
  // nullptr, or which rows of its tensors make the matrix; slices then begin at 0 and count only
  // the bytes of these rows.
  std::shared_ptr<const RowRuns> runs = nullptr;

  std::uint64_t bytes() const;
};

// The tensors of one source module, by component; empty where there is none.
struct SourceModule : Components<SourceTensor> {
  // kCorrupt when the component is there already: two source names mean the same tensor.
  Status add(Component component, const SourceTensor& tensor);
};

// What config.json says about quantization, by canonical module name.
class DeclaredFormats {
 public:
  DeclaredFormats(const Architecture& names, const std::optional<QuantizationConfig>& quantization);

  // kCorrupt when the declaration for the module of `codes` contradicts what its shapes gave.
  Status check(const SourceTensor& codes, const WeightFormat& found) const;

 private:
  const Architecture* names_;
  std::optional<WeightFormat> default_;
  std::map<std::string, std::optional<WeightFormat>, std::less<>> overrides_;
};

// The format of a module whose logical shape (by the configuration) is `shape`, the input last.
// kCorrupt: shapes that contradict the configuration or each other, naming the tensor and both;
// kUnsupported: a dtype that cannot be converted.
Result<WeightFormat> infer_format(const SourceModule& module, std::span<const std::uint64_t> shape);

// Matrix `index` of `module`, which holds consecutive [rows, cols] matrices of one format; rows
// [row_begin, row_begin + row_count) of it. The shapes were checked by infer_format.
SourceMatrix slice_matrix(const SourceModule& module, const WeightFormat& format,
                          std::uint64_t index, std::uint64_t rows, std::uint64_t cols,
                          std::uint64_t row_begin, std::uint64_t row_count);
// The rows `runs` of `whole`, which they must not leave.
SourceMatrix gather_rows(const SourceMatrix& whole, RowRuns runs);

}  // namespace moepack
