// The tensors' bytes of an exported GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "convert/export/gguf/export_gguf_plan.h"
#include "convert/job/progress_counter.h"
#include "formats/base/status.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/model_dir.h"

namespace moepack {

// What write_gguf_data reads, for its progress.
std::uint64_t gguf_source_bytes(const ModelDir& model, const GgufPlan& plan);

// kUnsupported unless every scale and bias that becomes a block's is a float16; names the tensor
// and the first that is not. Reads scales and biases alone, and codes where one of them is not.
Status check_gguf_exact(const ModelDir& model, const GgufPlan& plan, std::size_t threads);

// Writes all tensors. The model's checksums are compared first: the residents' all at once, an
// expert's before its record is used (kCorrupt). A worker holds a few mebibytes, whatever the
// model.
Status write_gguf_data(const ModelDir& model, const GgufPlan& plan, const GgufHead& head,
                       std::size_t threads, GgufOutput& output, ProgressCounter& progress);

}  // namespace moepack
