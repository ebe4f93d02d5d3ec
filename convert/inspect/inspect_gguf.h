// inspect on a GGUF file.
#pragma once

#include <filesystem>

#include "convert/inspect/inspect.h"
#include "formats/base/status.h"

namespace moepack {

// Describes the file. `path` is the file, or any part of it; all parts are looked at.
Result<GgufSummary> summarize_gguf(const std::filesystem::path& path);

// Visits all tensors of all parts by name, with `dtype` as ggml calls it and the row-major `shape`
// of the elements.
Status list_gguf_tensors(const std::filesystem::path& path, const TensorVisitor& visit);

}  // namespace moepack
