// expert_index.json of a GGUF file; docs/pack-format.md states the schema.
#pragma once

#include <filesystem>

#include "convert/inspect/expert_index.h"
#include "convert/job/byte_sink.h"
#include "formats/base/status.h"

namespace moepack {

// Does what write_expert_index does. `path` is the file, or any part of it. kUnsupported: the file
// is big-endian (its bytes cannot be used in place), or has no stacked experts; otherwise the
// errors are those of GgufModel::open and find_gguf_experts.
Result<ExpertIndexSummary> write_gguf_expert_index(const std::filesystem::path& path,
                                                   const ByteSink& sink);

}  // namespace moepack
