// Text from a model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/prompt_cache.h"
#include "runtime/sampler.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

struct GenerateOptions {
  std::uint64_t max_tokens = 128;
  std::vector<std::int32_t> stop_ids;  // end the text and are not part of it
  SamplerOptions sampling;
  // Keeps the prompt's state; the engine has been opened with saves_sequence.
  std::optional<PromptCacheOptions> prompt_cache;
};

enum class StopReason : std::uint8_t { kStopToken, kLength, kContext };
std::string_view stop_reason_name(StopReason reason);  // "stop", "length", "context"

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // new ones, without the stop token
  std::string text;                  // what was streamed
  StopReason reason = StopReason::kLength;
  std::size_t prompt_tokens = 0;
  PromptReuse reuse;          // nothing unless there is a prompt cache
  double prompt_seconds = 0;  // without reading and writing the cache
  double decode_seconds = 0;
  StageSeconds prompt_stages;  // zeros unless the engine's StageTimes run
  StageSeconds decode_stages;

  std::size_t computed_tokens() const { return prompt_tokens - reuse.reused; }  // of the prompt
  double prompt_rate() const;  // of these, per second
  double decode_rate() const;
};

// Feeds `prompt` to a freshly reset engine and continues it. Pieces of text go to `on_text`, which
// may be empty, as soon as their characters are complete. Prompt and new tokens together are at
// most engine.context(). An empty prompt, and one that leaves no room for a token, are
// kInvalidArgument; otherwise the errors are those of the engine and the sampler. The calling
// thread must be the one that uses the engine, and `on_text` is called in it.
Result<GenerateResult> generate(Engine& engine, const Tokenizer& tokenizer,
                                std::span<const std::int32_t> prompt,
                                const GenerateOptions& options,
                                const std::function<void(std::string_view)>& on_text);

// The ids that end a text: eos_token_id of MODEL/generation_config.json where that file has one,
// else those of config.json.
Result<std::vector<std::int32_t>> read_stop_ids(const std::filesystem::path& model,
                                                const ModelConfig& config);

}  // namespace moepack
