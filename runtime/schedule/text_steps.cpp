#include "runtime/schedule/text_steps.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "formats/base/elapsed.h"
#include "runtime/schedule/caught.h"

namespace moepack {
namespace {

void tell_decoded(TextRun& run, const Status& status) {
  const Status thrown = caught([&] { run.after_decode(status); });
  if (!thrown.is_ok()) run.fail(thrown);
}

}  // namespace

Status TextSteps::compute(std::span<TextRun* const> decoding, TextRun* prompt,
                          const TextRun::AlsoDraw& also, SchedulerStats& stats) {
  return rules_.may_mix() ? compute_mixed(decoding, prompt, also, stats)
                          : compute_apart(decoding, prompt, also, stats);
}

std::vector<Status> TextSteps::forward(std::vector<Slice> slices, const TextRun* prompt,
                                       SchedulerStats& stats) {
  const bool has_prompt = prompt != nullptr;
  const Clock::time_point start = Clock::now();
  std::vector<Status> statuses;
  const Status thrown = caught([&] { statuses = engine_.forward(slices); });
  if (!thrown.is_ok()) statuses.assign(slices.size(), thrown);
  (has_prompt ? stats.prompt_seconds : stats.decode_seconds) += seconds_since(start);
  const std::size_t decoding = slices.size() - (has_prompt ? 1 : 0);
  if (has_prompt) stats.prompt_tokens += prompt->computed();
  stats.decode_tokens += decoding;
  if (decoding > 0) ++stats.decode_steps;
  return statuses;
}

// All in one forward: an expert is read once for all of them.
Status TextSteps::compute_mixed(std::span<TextRun* const> decoding, TextRun* prompt,
                                const TextRun::AlsoDraw& also, SchedulerStats& stats) {
  std::vector<Slice> slices;
  for (TextRun* run : decoding) slices.push_back(run->decode_slice());
  if (prompt != nullptr) slices.push_back(prompt->prompt_slice(decoding.size(), also));
  const std::vector<Status> statuses = forward(std::move(slices), prompt, stats);
  for (std::size_t i = 0; i < decoding.size(); ++i) tell_decoded(*decoding[i], statuses[i]);
  return prompt == nullptr ? Status::ok() : statuses.back();
}

// As many rows at once as have the bits of one, and the prompt by itself.
Status TextSteps::compute_apart(std::span<TextRun* const> decoding, TextRun* prompt,
                                const TextRun::AlsoDraw& also, SchedulerStats& stats) {
  for (std::size_t first = 0; first < decoding.size(); first += rules_.decode_rows) {
    const auto group =
        decoding.subspan(first, std::min<std::size_t>(rules_.decode_rows, decoding.size() - first));
    std::vector<Slice> slices;
    for (TextRun* run : group) slices.push_back(run->decode_slice());
    const std::vector<Status> statuses = forward(std::move(slices), nullptr, stats);
    for (std::size_t i = 0; i < group.size(); ++i) tell_decoded(*group[i], statuses[i]);
  }
  if (prompt == nullptr) return Status::ok();
  std::vector<Slice> slices;
  slices.push_back(prompt->prompt_slice(0, also));
  return forward(std::move(slices), prompt, stats).front();
}

}  // namespace moepack
