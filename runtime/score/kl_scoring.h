// Whole runs that compare two models, through a base file or directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "formats/base/status.h"
#include "runtime/score/kl_stats.h"
#include "runtime/score/kld_base.h"
#include "runtime/score/logits_sink.h"
#include "runtime/score/perplexity.h"

namespace moepack {

// Scores the text and writes the base file too. The format knows only the second half of windows,
// so all_positions is kInvalidArgument. The file holds the windows that options.max_windows leaves.
Result<PerplexityReport> write_kld_base(const std::filesystem::path& path,
                                        std::span<const std::int32_t> tokens,
                                        const PerplexityOptions& options, std::size_t vocab_size,
                                        const WindowForward& forward,
                                        const PerplexityProgress& progress = {});

// Called after every window with the statistics of all windows so far.
using KlProgress =
    std::function<void(std::size_t done, std::size_t total, const KlSummary& so_far)>;

// Runs the base file's own tokens in windows of its context, and compares. `max_windows` limits the
// number of windows; 0 stands for all of the file's. `loop` as in PerplexityOptions.
Result<KlReport> score_against_base(KldBaseReader& base, std::size_t max_windows,
                                    const WindowForward& forward, const KlProgress& progress = {},
                                    const PartLoop& loop = {});

// Compares two models window by window on their float logits, without the base file's 16 bits and
// clipping. Memory: the base's logits of one window, 4 bytes * scores * vocabulary (253 MB for 255
// scores of 248k logits). The two forwards are called in turn, never at once.
Result<KlReport> compare_models(std::span<const std::int32_t> tokens,
                                const PerplexityOptions& options, const WindowForward& base_forward,
                                const WindowForward& forward, const KlProgress& progress = {});

}  // namespace moepack
