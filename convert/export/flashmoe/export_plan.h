// model_weights.bin and model_weights.json as the flash-moe engines read them: which tensors, in
// which encoding, at which offset of which file.
//
// Their conventions: matrices in affine 4-bit codes with BF16 scales and biases per 64 inputs, the
// only resident format their kernels know; norms as the factor itself; conv1d as [channels, taps,
// 1]; A_log as F32, everything else as BF16; components sorted by name, each at a multiple of 64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_dir.h"

namespace moepack {

// What happens to a tensor's values.
enum class ExportChange : std::uint8_t {
  kNone,        // bytes as they are
  kRound,       // a matrix to the engines' format, by MLX's rule (quant/affine.h)
  kWiden,       // to F32
  kNarrow,      // to BF16, nearest, ties to even
  kNormPlusOne  // 1 + w, to BF16
};

struct ExportTensor {
  const ResidentTensor* source = nullptr;
  std::string name;  // canonical; of the output head differs from the source's when it is tied
  ExportChange change = ExportChange::kNone;
  bool undo_neg_exp = false;  // the source holds -exp(A_log)
  WeightFormat format = {};   // of the output
  std::vector<std::uint64_t> shape = {};
  MatrixBytes bytes = {};
  Components<std::uint64_t> offsets = {};  // logical: through all chunks
};

// A file of the weights: logical bytes [begin, begin + size).
struct ExportChunk {
  std::string file;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

// How the files of split weights are called. The engine's extraction script and its loader differ:
// the script writes model_weights.bin, model_weights_1.bin, …, the loader looks for
// model_weights_0.bin and model_weights_1.bin and for no third.
enum class SplitNames : std::uint8_t { kWriter, kLoader };

struct ExportPlan {
  std::vector<ExportTensor> tensors;  // by name
  std::vector<ExportChunk> chunks;    // without a gap; all but the last a multiple of 64 long
  std::string manifest;               // the text of model_weights.json
  std::uint64_t data_size = 0;
  std::uint32_t num_components = 0;  // tensors as the engines count them
};

// kUnsupported: a family that the engines do not compute, by name.
Status check_engines_compute(const ModelDir& model);

// `split_bytes`: largest size of a file; 0: one file. A tensor's component lies in one file.
// kInvalidArgument: a component is larger than split_bytes, or kLoader would need a third file;
// kUnsupported: tensors that the engines cannot represent, named.
Result<ExportPlan> plan_export(const ModelDir& model, std::uint64_t split_bytes, SplitNames names);

}  // namespace moepack
