// Which tensors a GGUF file of a model directory has, in which type, and what becomes of the stored
// bytes. Decided from the manifests alone; nothing is rounded.
//
// Source of names, types and orders: llama.cpp's conversion/qwen.py and base.py, and what
// src/models/qwen35moe.cpp and qwen3next.cpp load.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "convert/source/row_gather.h"
#include "convert/source/tensor_names.h"
#include "formats/base/status.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/model_dir.h"

namespace moepack {

// What happens to a tensor's values.
enum class GgufChange : std::uint8_t {
  kNone,         // bytes as they are
  kWiden,        // to F32, exactly
  kNormPlusOne,  // 1 + w in float32, to F32
  kNegExp,       // -exp(A_log) in float32, to F32
  kBlocks,       // affine codes to Q4_1 or Q5_1, if that is exact (formats/weights/affine_blocks.h)
};

// A resident, or rows of it, and where it goes.
struct GgufResident {
  const ResidentTensor* source = nullptr;
  std::uint64_t rows = 0;  // as the plan divides the source: heads' parameters by head
  std::uint64_t cols = 0;
  std::uint32_t tensor = 0;  // index in GgufHead::tensors()
  GgufChange change = GgufChange::kNone;
  QFormatId target = QFormatId::kF32;
  // Rows of the source in the order of the output; empty: as they are. Reordered heads.
  RowRuns gather = {};
  // Rows of the output, one for each of the source; empty: as they are. Parts of fused tensors.
  RowRuns scatter = {};
  // Columns of the output, as runs of columns of the source; empty: as they are.
  RowRuns columns = {};
};

// The routed experts of one layer: one tensor a projection, experts behind each other.
struct GgufExperts {
  std::array<std::uint32_t, kProjections> tensors{};
  std::array<QFormatId, kProjections> targets{};
};

struct GgufPlan {
  const Architecture* names = nullptr;
  std::vector<GgufResident> residents;
  std::vector<GgufExperts> layers;
  // The encoding of affine matrices, "q2 g64 as Q4_1", and how many there are: residents, and
  // projections of layers.
  std::vector<std::pair<std::string, std::uint32_t>> blocks;
};

// Adds the tensors to `head`. kUnsupported, naming the tensor or the layer and projection: a model
// type that has no table, tensors that it does not know, experts of one layer in several types,
// formats that no type of ggml holds, reordered heads across blocks; kNotFound: a tensor is
// missing; kCorrupt: one has another shape than the configuration says.
Result<GgufPlan> plan_gguf(const ModelDir& model, GgufHead& head);

}  // namespace moepack
