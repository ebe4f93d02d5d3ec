#include "runtime/generate.h"

#include <algorithm>

#include "formats/base/elapsed.h"
#include "formats/config/companion_files.h"
#include "formats/config/generation_config.h"

namespace moepack {
namespace {

// A context counts the prompt and what is written behind it.
Status check_room(const Engine& engine, std::span<const std::int32_t> prompt,
                  const GenerateOptions& options) {
  if (prompt.empty()) return invalid_argument("the prompt is empty", "give one with -p or -f");
  if (options.max_tokens == 0 || prompt.size() < engine.context()) return Status::ok();
  return invalid_argument("a prompt of " + std::to_string(prompt.size()) +
                              " tokens leaves no room for an answer in a context of " +
                              std::to_string(engine.context()),
                          "raise -c or shorten the prompt");
}

Status compute_prompt(Engine& engine, std::span<const std::int32_t> prompt,
                      const GenerateOptions& options, const LogitsSink& sink,
                      GenerateResult& result) {
  if (options.prompt_cache.has_value()) {
    MOE_ASSIGN_OR_RETURN(result.reuse, forward_prompt(engine, prompt, *options.prompt_cache, sink,
                                                      result.prompt_seconds));
    return Status::ok();
  }
  engine.reset();
  const Clock::time_point start = Clock::now();
  MOE_RETURN_IF_ERROR(engine.forward(prompt, prompt.size() - 1, sink));
  result.prompt_seconds = seconds_since(start);
  return Status::ok();
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kStopToken:
      return "stop";
    case StopReason::kLength:
      return "length";
    default:
      return "context";
  }
}

double GenerateResult::prompt_rate() const { return per_second(computed_tokens(), prompt_seconds); }

// The first new token comes out of the prompt's pass, every further one out of a pass of its own.
double GenerateResult::decode_rate() const {
  return per_second(tokens.empty() ? 0 : tokens.size() - 1, decode_seconds);
}

Result<GenerateResult> generate(Engine& engine, const Tokenizer& tokenizer,
                                std::span<const std::int32_t> prompt,
                                const GenerateOptions& options,
                                const std::function<void(std::string_view)>& on_text) {
  MOE_RETURN_IF_ERROR(check_room(engine, prompt, options));
  const auto vocab = static_cast<std::size_t>(
      std::min<std::int64_t>(tokenizer.size(), engine.config().vocab_size));
  MOE_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(options.sampling, vocab));
  sampler.follow(prompt);
  StreamDecoder decoder(tokenizer);
  GenerateResult result;
  result.prompt_tokens = prompt.size();
  std::int32_t next = 0;
  const LogitsSink draw = [&](std::size_t, std::span<const float> logits) -> Status {
    MOE_ASSIGN_OR_RETURN(next, sampler.sample(logits));
    return Status::ok();
  };
  const TopSink take = [&](std::size_t, std::int32_t id) {
    next = id;
    return Status::ok();
  };
  const bool is_greedy = options.sampling.temperature <= 0.0F;
  const auto emit = [&](const std::string& piece) {
    result.text += piece;
    if (on_text && !piece.empty()) on_text(piece);
  };

  const StageSeconds before = engine.stage_times().read();
  MOE_RETURN_IF_ERROR(compute_prompt(engine, prompt, options, draw, result));
  const StageSeconds between = engine.stage_times().read();
  result.prompt_stages = between.since(before);
  const Clock::time_point decode_start = Clock::now();
  while (true) {
    if (result.tokens.size() >= options.max_tokens) break;
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), next) !=
        options.stop_ids.end()) {
      result.reason = StopReason::kStopToken;
      break;
    }
    result.tokens.push_back(next);
    emit(decoder.push(next));
    if (result.tokens.size() >= options.max_tokens) break;
    if (prompt.size() + result.tokens.size() >= engine.context()) {
      result.reason = StopReason::kContext;
      break;
    }
    const std::int32_t token = next;  // `draw` writes `next` during the call
    const std::span<const std::int32_t> tokens(&token, 1);
    MOE_RETURN_IF_ERROR(is_greedy
                            ? engine.forward_top(tokens, 0, static_cast<std::uint32_t>(vocab), take)
                            : engine.forward(tokens, 0, draw));
  }
  result.decode_seconds = seconds_since(decode_start);
  result.decode_stages = engine.stage_times().read().since(between);
  emit(decoder.finish());
  MOE_RETURN_IF_ERROR(engine.adapt_hot_experts().status());
  return result;
}

Result<std::vector<std::int32_t>> read_stop_ids(const std::filesystem::path& model,
                                                const ModelConfig& config) {
  MOE_ASSIGN_OR_RETURN(const auto text, read_companion(model, kGenerationConfigName));
  if (!text.has_value()) return config.eos_token_ids;
  const std::string file = (model / kGenerationConfigName).string();
  MOE_ASSIGN_OR_RETURN(const auto ids, parse_stop_ids(*text, file, config.vocab_size));
  return ids.value_or(config.eos_token_ids);
}

}  // namespace moepack
