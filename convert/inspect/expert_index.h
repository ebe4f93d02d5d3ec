// expert_index.json: where every routed expert of a checkpoint lies, for programs that read experts
// from the source files themselves. The schema is flash-moe's; docs/pack-format.md states it and
// what is added for sources that keep one tensor per expert or fuse gate and up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "convert/job/byte_sink.h"
#include "formats/base/status.h"

namespace moepack {

struct ExpertIndexSummary {
  std::string directory;  // that holds the files; model_path of the index
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint64_t expert_bytes = 0;  // of all experts in the source
  std::uint64_t index_bytes = 0;   // of the text
};

// Streams the text of the index of `source` (as Checkpoint::open takes it, or a GGUF file). The
// same checkpoint and path give the same text. Errors are those of make_plan, or for a GGUF file
// those of write_gguf_expert_index.
Result<ExpertIndexSummary> write_expert_index(const std::filesystem::path& source,
                                              const ByteSink& sink);

}  // namespace moepack
