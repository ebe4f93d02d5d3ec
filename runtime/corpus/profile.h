// Runs texts through a model, layer by layer, and counts how often each routed expert is chosen and
// with what router weight (formats/calibration/expert_profile.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/expert_profile.h"
#include "runtime/corpus/corpus_forward.h"
#include "runtime/model/model_selection.h"

namespace moepack {

struct ProfileOptions : ModelSelection {
  std::uint32_t context = 512;   // tokens of a window; each starts from a fresh state
  std::uint64_t max_tokens = 0;  // 0: all
  std::uint64_t ram_bytes = 0;   // for what grows with the tokens of a batch (CorpusMemory)
};

struct ProfileProgress {
  std::uint64_t tokens_done = 0;  // tokens times layers
  std::uint64_t tokens_total = 0;
  std::uint32_t layers_done = 0;  // of all batches
  std::uint32_t layers_total = 0;
};

struct ProfileReport {
  ExpertProfile profile;  // of a dry run: nothing counted yet
  std::string kernels;
  std::uint64_t text_tokens = 0;  // of all texts
  std::uint64_t windows = 0;
  std::uint64_t batches = 0;       // every expert of all layers but the last is read once in each
  std::uint64_t memory_bytes = 0;  // of the largest batch, with what no batch changes
  std::uint64_t read_bytes = 0;    // of expert records; of a dry run: at most
  double seconds = 0;
};

// A window of one of the texts.
struct TextWindow {
  std::size_t text = 0;
  std::uint64_t first = 0;  // index of its first token in the text
  std::uint64_t count = 0;
};

// The windows of `context` tokens of several texts, which are given by their numbers of tokens.
// Each text's windows begin at its start, and a shorter last one is included. Where the texts are
// longer than `max_tokens` (0: no limit), whole windows are spread evenly over all texts, the last
// one cut to the rest. For one text these are the windows of choose_windows.
std::vector<TextWindow> choose_text_windows(std::span<const std::uint64_t> text_tokens,
                                            std::uint32_t context, std::uint64_t max_tokens);

// Checks everything and tells sizes; computes nothing.
Result<ProfileReport> plan_profile(const ProfileOptions& options,
                                   std::span<const std::vector<std::int32_t>> texts);

// Runs the texts and counts. As many windows as `ram_bytes` holds go through the model together.
// The result does not depend on the number of threads. It may depend on the batches through
// rounding, because SIMD kernels round products of few tokens in another way; the reference kernels
// do not.
Result<ProfileReport> profile_experts(const ProfileOptions& options,
                                      std::span<const std::vector<std::int32_t>> texts,
                                      const std::function<void(const ProfileProgress&)>& progress);

}  // namespace moepack
