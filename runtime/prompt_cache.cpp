#include "runtime/prompt_cache.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/elapsed.h"
#include "runtime/prompt_file.h"

namespace moepack {
namespace {

std::uint64_t common_tokens(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return static_cast<std::uint64_t>(end - a.begin());
}

// The largest position before the last token at which the prompt may be cut.
std::uint64_t last_cut(const Engine& engine, std::size_t prompt_tokens) {
  return (prompt_tokens - 1) / engine.cut_tokens() * engine.cut_tokens();
}

// Of a sequence that has seen reuse.saved tokens.
std::uint64_t usable_tokens(const Engine& engine, const Sequence& sequence,
                            const PromptReuse& reuse, std::size_t prompt_tokens) {
  const std::uint64_t most = std::min(reuse.common, last_cut(engine, prompt_tokens));
  if (most == reuse.saved) return most;
  if (!sequence.can_truncate()) return 0;
  return most / engine.cut_tokens() * engine.cut_tokens();
}

Status save_prompt(const Engine& engine, const Sequence& sequence,
                   std::span<const std::int32_t> tokens, const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, sequence.save());
  const PromptHead head{.origin = origin_of(engine),
                        .tokens = {tokens.begin(), tokens.end()},
                        .sequence_bytes = bytes.size()};
  return write_prompt_file(path, head, bytes);
}

}  // namespace

Result<PromptReuse> restore_prompt(Engine& engine, std::span<const std::int32_t> prompt,
                                   const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(Sequence* const sequence, engine.own_sequence());
  sequence->reset();
  PromptReuse reuse;
  auto found = read_prompt_file(path);
  if (found.status().code() == StatusCode::kNotFound) return reuse;
  MOE_ASSIGN_OR_RETURN(const PromptFile file, std::move(found));
  const std::string name = path.string();
  // Also where nothing of it can be used: what is not this model's is not replaced.
  MOE_RETURN_IF_ERROR(sequence->restore(
      file.sequence(), {.file = name, .at = file.sequence_at, .remedy = kPromptFileRemedy}));
  if (sequence->position() != file.head.tokens.size()) {
    return corrupt(Where{.file = name, .offset = file.sequence_at},
                   "has a state of " + std::to_string(sequence->position()) + " tokens, not of " +
                       std::to_string(file.head.tokens.size()),
                   kPromptFileRemedy);
  }
  reuse.has_file = true;
  reuse.saved = file.head.tokens.size();
  reuse.common = common_tokens(file.head.tokens, prompt);
  reuse.is_other_kind = file.head.origin != origin_of(engine);
  if (!reuse.is_other_kind) reuse.reused = usable_tokens(engine, *sequence, reuse, prompt.size());
  if (reuse.reused == 0) {
    sequence->reset();
    return reuse;
  }
  MOE_RETURN_IF_ERROR(sequence->truncate(reuse.reused));
  return reuse;
}

Result<PromptReuse> forward_prompt(Engine& engine, std::span<const std::int32_t> prompt,
                                   const PromptCacheOptions& options, const LogitsSink& sink,
                                   double& seconds) {
  if (prompt.size() > engine.context()) {
    engine.reset();
    return engine.forward(prompt, prompt.size(), {});  // refused, before anything is computed
  }
  MOE_ASSIGN_OR_RETURN(PromptReuse reuse, restore_prompt(engine, prompt, options.path));
  MOE_ASSIGN_OR_RETURN(const Sequence* const sequence, engine.own_sequence());
  std::uint64_t seen = reuse.reused;
  seconds = 0;
  const std::uint64_t cut = last_cut(engine, prompt.size());
  // A file that goes beyond the prompt knows more than this prompt could leave there.
  const bool goes_beyond = !reuse.is_other_kind && reuse.common == prompt.size();
  if (!options.read_only && !goes_beyond && cut > seen) {
    const Clock::time_point start = Clock::now();
    MOE_RETURN_IF_ERROR(engine.forward(prompt.subspan(seen, cut - seen), cut - seen, {}));
    seconds += seconds_since(start);
    MOE_RETURN_IF_ERROR(save_prompt(engine, *sequence, prompt.first(cut), options.path));
    reuse.written = cut;
    seen = cut;
  }
  const Clock::time_point start = Clock::now();
  const std::span<const std::int32_t> rest = prompt.subspan(seen);
  MOE_RETURN_IF_ERROR(engine.forward(rest, rest.size() - 1, sink));
  seconds += seconds_since(start);
  return reuse;
}

}  // namespace moepack
