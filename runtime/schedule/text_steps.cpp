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

void count_forward(std::uint64_t decoded, std::uint64_t prompt_tokens, double seconds,
                   SchedulerStats& stats) {
  const std::uint64_t rows = std::max<std::uint64_t>(decoded + prompt_tokens, 1);
  const double decode_share = static_cast<double>(decoded) / static_cast<double>(rows);
  stats.decode_seconds += seconds * decode_share;
  stats.prompt_seconds += seconds * (1 - decode_share);
  stats.decode_tokens += decoded;
  stats.prompt_tokens += prompt_tokens;
  if (decoded > 0) ++stats.decode_steps;
}

std::vector<Status> TextSteps::compute(std::span<TextRun* const> decoding,
                                       std::span<TextRun* const> prompts,
                                       const TextRun::AlsoDraw& also, SchedulerStats& stats) {
  return rules_.may_mix() ? compute_mixed(decoding, prompts, also, stats)
                          : compute_apart(decoding, prompts, also, stats);
}

// `prompts`: those whose slices are the last ones.
std::vector<Status> TextSteps::forward(std::vector<Slice> slices, std::span<TextRun* const> prompts,
                                       SchedulerStats& stats) {
  const Clock::time_point start = Clock::now();
  std::vector<Status> statuses;
  const Status thrown = caught([&] { statuses = engine_.forward(slices); });
  if (!thrown.is_ok()) statuses.assign(slices.size(), thrown);
  std::uint64_t prompt_tokens = 0;
  for (const TextRun* prompt : prompts) prompt_tokens += prompt->computed();
  count_forward(slices.size() - prompts.size(), prompt_tokens, seconds_since(start), stats);
  return statuses;
}

// All in one forward: an expert is read once for all of them. Short prompts that came at once share
// a slice's length.
std::vector<Status> TextSteps::compute_mixed(std::span<TextRun* const> decoding,
                                             std::span<TextRun* const> prompts,
                                             const TextRun::AlsoDraw& also, SchedulerStats& stats) {
  std::vector<Slice> slices;
  for (TextRun* run : decoding) slices.push_back(run->decode_slice());
  std::uint64_t rows = decoding.size();
  std::uint64_t left = std::max<std::uint64_t>(rules_.slice_tokens, 1);
  std::size_t count = 0;
  while (count < prompts.size() && (count == 0 || (left > 0 && rows < rules_.chunk_tokens))) {
    TextRun& prompt = *prompts[count];
    slices.push_back(prompt.prompt_slice(rows, left, count == 0 ? also : TextRun::AlsoDraw()));
    rows += prompt.computed();
    left -= std::min(left, prompt.computed());
    ++count;
  }
  std::vector<Status> statuses = forward(std::move(slices), prompts.first(count), stats);
  for (std::size_t i = 0; i < decoding.size(); ++i) tell_decoded(*decoding[i], statuses[i]);
  statuses.erase(statuses.begin(), statuses.begin() + static_cast<std::ptrdiff_t>(decoding.size()));
  return statuses;
}

// As many rows at once as have the bits of one, and the first prompt by itself.
std::vector<Status> TextSteps::compute_apart(std::span<TextRun* const> decoding,
                                             std::span<TextRun* const> prompts,
                                             const TextRun::AlsoDraw& also, SchedulerStats& stats) {
  for (std::size_t first = 0; first < decoding.size(); first += rules_.decode_rows) {
    const auto group =
        decoding.subspan(first, std::min<std::size_t>(rules_.decode_rows, decoding.size() - first));
    std::vector<Slice> slices;
    for (TextRun* run : group) slices.push_back(run->decode_slice());
    const std::vector<Status> statuses = forward(std::move(slices), {}, stats);
    for (std::size_t i = 0; i < group.size(); ++i) tell_decoded(*group[i], statuses[i]);
  }
  if (prompts.empty()) return {};
  std::vector<Slice> slices;
  slices.push_back(prompts.front()->prompt_slice(0, rules_.slice_tokens, also));
  return forward(std::move(slices), prompts.first(1), stats);
}

}  // namespace moepack
