// A prompt that is not computed again: its state kept in a file between runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "formats/base/status.h"
#include "runtime/engine.h"

namespace moepack {

struct PromptCacheOptions {
  std::filesystem::path path;
  bool read_only = false;  // the file is used, and left as it is
};

// What became of a prompt's tokens.
struct PromptReuse {
  bool has_file = false;       // there was one
  bool is_other_kind = false;  // computed in another way (PromptOrigin): nothing of it was used
  std::uint64_t saved = 0;     // tokens in the file
  std::uint64_t common = 0;    // of them, the first that are the prompt's too
  std::uint64_t reused = 0;    // tokens whose state was taken from it
  std::uint64_t written = 0;   // tokens in the file that replaced it; 0: none did
};

// The engine's own sequence (Engine::own_sequence) in the state after the first tokens of `prompt`,
// as many as the file at `path` has and can be used with the same bits as computing them:
//   * the file's tokens, where they are the beginning of the prompt and end before its last token,
//     whose logits are needed;
//   * where a sequence can be cut (Sequence::truncate), as many as they have in common;
//   * none otherwise, and where there is no file.
// Always at a multiple of Engine::cut_tokens(). Errors: those of read_prompt_file() and
// Sequence::restore(), for a file of another model too, whatever its tokens are.
Result<PromptReuse> restore_prompt(Engine& engine, std::span<const std::int32_t> prompt,
                                   const std::filesystem::path& path);

// Computes `prompt`, which is not empty, with the engine's own sequence, which is first put where
// the file allows it. The logits of the last token go to `sink`. What the file did not have is
// saved in it: the state before the last token, or at the last multiple of cut_tokens() before it,
// so that the same prompt costs that little the next time. `seconds` becomes the time that
// computing took, without the file.
Result<PromptReuse> forward_prompt(Engine& engine, std::span<const std::int32_t> prompt,
                                   const PromptCacheOptions& options, const LogitsSink& sink,
                                   double& seconds);

}  // namespace moepack
