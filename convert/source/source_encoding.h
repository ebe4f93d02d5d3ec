// How checkpoints write the weights of a module, one entry for each way: how it is recognised,
// which stored format its matrices come in, and how their rows are made. An encoding whose codes a
// stored format can hold is repacked into it without loss; every other one is decoded to f32.
// What becomes of each: docs/cli.md, convert.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "convert/source/source_tensor.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/weights/qformat.h"

namespace moepack {

// The tensors of one source module, by component; empty where there is none.
struct SourceModule : Components<SourceTensor> {
  // kCorrupt when the component is there already: two source names mean the same tensor.
  Status add(Component component, const SourceTensor& tensor);
};

struct SourceEncoding;

// How small floats with scales are written: convert/source/encoding_floats.cpp.
struct FloatCodes;

// A module whose tensors were checked: [.., rows, cols], all matrices of one format.
struct ModuleForm {
  const SourceEncoding* encoding = nullptr;
  SourceModule tensors;
  // In which its rows are read. Where the encoding has read_rows, f32 may be put here instead: the
  // same weights, decoded.
  WeightFormat format;
  // How MLX's config.json calls it, which may be a format that cannot hold this shape.
  WeightFormat named;
  std::uint64_t matrices = 1;
  std::uint64_t rows = 0;  // of one matrix
  std::uint64_t cols = 0;
  // Weights that share a scale, where the encoding leaves it to the configuration or to shapes.
  std::uint64_t block_rows = 0;
  std::uint64_t block_cols = 0;
  // Of integers: their width, and how many stand in a 32-bit word where some of its bits are left
  // over; 0: they follow each other without gaps.
  std::uint32_t bits = 0;
  std::uint32_t codes_per_word = 0;
  bool zeros_less_one = false;         // SourceQuantization::zeros_less_one
  const FloatCodes* floats = nullptr;  // of small floats
  // Of encodings that pick columns: row or column i of the matrix is column first_column +
  // i * column_step of the tensor.
  std::uint64_t first_column = 0;
  std::uint64_t column_step = 1;

  // True when no stored format holds what the source means, so that rows come as f32.
  bool is_decoded() const;
};

// What a tensor is whose name ends in `suffix`, which follows the name of its module.
struct SourceSuffix {
  std::string_view suffix;
  std::optional<Component> component;  // nullopt: decoding the weights does not need it
};

struct SourceEncoding {
  std::string_view name;  // for people: "fp8"
  std::span<const SourceSuffix> suffixes;
  // The quantization methods (SourceQuantization::method) whose checkpoints hold it; empty: any.
  std::span<const std::string_view> methods = {};
  bool (*detects)(const SourceModule& module, const SourceQuantization& declared);
  // Fills in the rest of `form`, which has encoding and tensors, for the logical shape `shape` (by
  // the configuration, the input last). kCorrupt: shapes that contradict it or each other, naming
  // the tensor and both; kUnsupported: a variant that cannot be read.
  Status (*check)(std::span<const std::uint64_t> shape, const SourceQuantization& declared,
                  ModuleForm& form);
  // Fills `out` with rows [begin, end) of a component of form.format, counted over all matrices of
  // the module. nullptr: the tensors hold just these bytes. Any number of threads.
  Status (*read_rows)(const ModuleForm& form, Component component, std::uint64_t begin,
                      std::uint64_t end, std::span<std::byte> out);
  // The rows are the tensors' own numbers in another order.
  bool only_moves = false;
};

// All of them; the first that detects a module is its encoding.
std::span<const SourceEncoding* const> source_encodings();

// Removes the suffix that some encoding gives to a tensor of a module; nullopt when there is none.
std::optional<SourceSuffix> take_source_suffix(std::string_view& name);

// kUnsupported: no encoding knows the module's codes; kCorrupt: the encoding is not one of the
// declared method. Else the errors of SourceEncoding::check.
Result<ModuleForm> recognise_module(const SourceModule& module,
                                    std::span<const std::uint64_t> shape,
                                    const SourceQuantization& declared);

// kCorrupt: the shape is `found`, config.json gives `expected`.
Status source_shape_error(const SourceTensor& tensor, std::span<const std::uint64_t> expected);
// kCorrupt: `tensor` is not what the others of its module ask for: `type` of the shape `expected`.
Status component_shape_error(const SourceTensor& tensor, std::string_view type,
                             std::span<const std::uint64_t> expected);
// kNotFound: the module has codes and lacks the tensor with this suffix.
Status missing_component(const ModuleForm& form, std::string_view suffix);
// kCorrupt: the module has a component that its encoding does not need. `allowed`: those it may
// have beside codes.
Status refuse_other_components(const ModuleForm& form, std::initializer_list<Component> allowed);
// kUnsupported unless the scales are F32, BF16, F16 or F8_E8M0.
Status check_float_scales(const SourceTensor& scales);
// A scale of a type that check_float_scales lets pass.
float load_scale(DType type, const std::byte* at);
// kCorrupt: element `index` of the scales is NaN, infinite or, where it divides, zero.
Status scale_error(const SourceTensor& scales, std::uint64_t index, float value);
// True when all dimensions but the last agree.
bool same_outer_shape(const SourceTensor& tensor, std::span<const std::uint64_t> shape);
bool has_shape(const SourceTensor& tensor, std::span<const std::uint64_t> shape);
// True when the tensor's name ends in `suffix`.
bool is_named(const SourceTensor& tensor, std::string_view suffix);
// -2^(bits - 1) * scale for each scale in `out`, in place: what makes affine codes of codes that
// count from there. `first_row`: of the module; `groups`: scales of a row.
Status scales_to_biases(const ModuleForm& form, std::uint64_t groups, std::uint64_t first_row,
                        std::span<std::byte> out);

// The affine format that holds the form's codes in groups of `group` inputs with scales of the
// source's own type; nullopt when there is none.
std::optional<WeightFormat> affine_format_of(const ModuleForm& form, std::uint64_t group);
// [cols]: the group of each input, by its place or by the module's order. kCorrupt: the order names
// a group without scales, or, where the codes are kept, another than the input's place.
Result<std::vector<std::uint32_t>> input_groups(const ModuleForm& form);

// What the tables of a family say of a module whose plain numbers lie in another order; no module
// is recognised as these. `rows` and `cols`: of one matrix; `first`, `step`: first_column,
// column_step. The tensor holds [.., cols, columns]: row i is one of its columns.
ModuleForm transposed_form(ModuleForm plain, std::uint64_t rows, std::uint64_t cols,
                           std::uint64_t first, std::uint64_t step);
// The tensor holds [.., rows, columns], of which the matrix has some.
ModuleForm picked_columns_form(ModuleForm plain, std::uint64_t rows, std::uint64_t cols,
                               std::uint64_t first, std::uint64_t step);

extern const SourceEncoding kPlainEncoding;          // floats, and blocks of GGUF files
extern const SourceEncoding kMlxAffineEncoding;      // MLX's affine codes
extern const SourceEncoding kMlxFloatEncoding;       // MLX's mxfp4, nvfp4, mxfp8
extern const SourceEncoding kFp8Encoding;            // F8_E4M3 with scales of blocks, rows or all
extern const SourceEncoding kInt8Encoding;           // I8, the same
extern const SourceEncoding kPackedIntegerEncoding;  // compressed-tensors' pack-quantized
extern const SourceEncoding kPackedFloatEncoding;    // compressed-tensors' nvfp4 and mxfp4
extern const SourceEncoding kModelOptFloatEncoding;  // ModelOpt's NVFP4
extern const SourceEncoding kOpenAiFloatEncoding;    // gpt-oss' MXFP4: _blocks and _scales
extern const SourceEncoding kGptqEncoding;
extern const SourceEncoding kAwqEncoding;  // the version gemm

}  // namespace moepack
