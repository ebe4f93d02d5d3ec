// inspect on a GGUF file.
#pragma once

#include <filesystem>

#include "convert/inspect/inspect.h"
#include "formats/base/status.h"

namespace moepack {

// `path`: the file, or any part of it; all parts are looked at.
Result<GgufSummary> summarize_gguf(const std::filesystem::path& path);

// All tensors of all parts by name: `dtype` as ggml calls it, `shape` of the elements, row-major.
Status list_gguf_tensors(const std::filesystem::path& path, const TensorVisitor& visit);

}  // namespace moepack
