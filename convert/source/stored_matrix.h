// A matrix that lies in files, wherever: in a checkpoint, in an expert's record or among the
// resident tensors. Its elements can be decoded piece by piece, so its size does not matter.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "convert/source/source_matrix.h"
#include "formats/base/file.h"
#include "formats/weights/expert_layout.h"

namespace moepack {

// Bytes of a file that outlives it: [offset, offset + bytes), or with `runs` those rows of what
// begins at `offset`; with `encoded` the bytes that its encoding makes of what is there; with
// `panels` the rows of the panels that are there.
struct FileRange {
  const File* file = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::shared_ptr<const RowRuns> runs = nullptr;
  std::uint64_t row_bytes = 0;                            // with `runs`, `encoded` and `panels`
  std::shared_ptr<const SourceMatrix> encoded = nullptr;  // whole, in its stored format
  std::optional<WeightFormat> panels = {};                // their format; bytes is theirs too
  Component component = Component::kCodes;                // of `encoded` or `panels`

  // Fills `out` with bytes [begin, begin + out.size()) of the range. Any number of threads.
  Status read(std::uint64_t begin, std::span<std::byte> out) const;
  // Where byte `byte` of the range lies in the file; with `runs` and `encoded` about there.
  std::uint64_t file_offset(std::uint64_t byte) const;
};

// Its rows follow each other in the ranges, whatever their order in the file.
struct StoredMatrix {
  WeightFormat format;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  Components<FileRange> ranges = {};  // empty for components that the format lacks

  const FileRange& codes() const { return ranges.codes(); }
  std::uint64_t elements() const { return rows * cols; }
  std::uint64_t bytes() const;
};

StoredMatrix stored_matrix(const SourceMatrix& source);
// One projection of the record that starts at `offset` of `file`.
StoredMatrix stored_matrix(const ProjectionLayout& part, const File& file, std::uint64_t offset);
// Where element `index`, the first of a group or block, begins in the bytes of a component.
std::uint64_t component_byte(const WeightFormat& format, Component component, std::uint64_t index);

// The most elements decoded at once: buffers of 512 KiB and less. A multiple of every group size.
constexpr std::uint64_t kDecodeBlock = std::uint64_t{1} << 17;

// Elements of a matrix as float32, and what they were decoded from. Borrowed from the decoder until
// its next call.
struct DecodedBlock {
  std::span<const float> values;
  QMatrixView view;  // one row of values.size() elements; reads no byte beyond them
};

// Holds the buffers of one thread.
class BlockDecoder {
 public:
  // Elements [begin, begin + count) in row-major order, 0 < count <= kDecodeBlock; begin and the
  // end stand between groups, blocks and bytes: at a row's, or begin at a multiple of kDecodeBlock.
  // Rows need no care: in every range they follow each other without a gap, and a group of affine
  // codes or a block starts at a whole byte, so any of them in a row are a matrix of their own.
  Result<DecodedBlock> decode(const StoredMatrix& matrix, std::uint64_t begin, std::uint64_t count);

 private:
  Components<std::vector<std::byte>> parts_;
  std::vector<float> values_;
};

}  // namespace moepack
