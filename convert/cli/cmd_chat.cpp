#include "convert/cli/cmd_chat.h"

#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "convert/cli/chat_interrupt.h"
#include "convert/cli/chat_run.h"
#include "convert/cli/model_flags.h"
#include "convert/cli/model_path.h"
#include "convert/cli/number_range.h"
#include "convert/cli/signal_watch.h"
#include "formats/base/limits.h"
#include "runtime/service/model_sampling.h"
#include "runtime/service/model_service.h"

namespace moepack::cli {
namespace {

constexpr std::uint64_t kChatContext = 16384;
constexpr std::uint64_t kChatSnapshotMib = 256;

struct ChatFlags {
  EngineFlags engine;
  ChatRunOptions run;
  std::uint64_t context = 0;
  std::int64_t max_tokens = -1;
  std::optional<float> temperature, top_p, min_p;
  std::optional<std::int32_t> top_k;
  std::optional<std::uint64_t> seed;
  std::string think;  // on, off; empty: as the template does
  std::string chat_template;
  std::string tool_parser;
  bool no_history = false;
};

void add_message_flags(CLI::App& command, ChatFlags& flags) {
  command.add_option("-p,--prompt", flags.run.prompt, "One message: its answer is printed");
  command.add_option("--system", flags.run.system, "What the model is told first");
  command.add_option("--think", flags.think, "Whether it thinks first: on, off; else its own way")
      ->check(CLI::IsMember({"on", "off"}));
  command.add_flag("--show-thoughts", flags.run.shows_thoughts, "Show thoughts, do not fold them");
  command.add_option("--tools", flags.run.tools_file, "JSON file of tools the model may call");
  command
      .add_option("--allow-tool", flags.run.allow_tools,
                  "NAME=COMMAND that answers a tool's calls, once you agree; several may be given")
      ->take_all();
  command.add_option("--tool-seconds", flags.run.tool_seconds, "Longest time of such a command")
      ->check(real_number(0.1, 86400))
      ->capture_default_str();
  command.add_flag("--no-history", flags.no_history, "Keep no file of the lines you type");
  command.add_option("--chat-template-file", flags.chat_template,
                     "Chat template (Jinja) instead of the model's own");
  command.add_option("--tool-parser", flags.tool_parser,
                     "How the model writes its calls of tools; else as its template tells: none, "
                     "hermes, qwen-xml, harmony, deepseek, dsml, glm, kimi, minimax");
}

void add_chat_sampling_flags(CLI::App& command, ChatFlags& flags) {
  command.add_option("-c,--ctx-size", flags.context, "Most tokens of the conversation; 0: 16384")
      ->check(whole_number(0, kMaxSequenceTokens))
      ->capture_default_str();
  command
      .add_option("-n,--predict", flags.max_tokens, "Most tokens of an answer; 0 or -1: no limit")
      ->check(whole_number(-1, std::uint64_t{1} << 30))
      ->capture_default_str();
  command.add_option("--temp", flags.temperature, "Temperature; else the model's own")
      ->check(real_number(0, 1000));
  command.add_option("--top-k", flags.top_k, "Draw from so many tokens; else the model's own")
      ->check(whole_number(0, 1000000));
  command.add_option("--top-p", flags.top_p, "The same by probability")->check(real_number(0, 1));
  command.add_option("--min-p", flags.min_p, "Least share of the best token's probability")
      ->check(real_number(0, 1));
  command.add_option("-s,--seed", flags.seed, "Seed of the draw; else a random one");
}

Result<SamplerOptions> chat_sampling(const ChatFlags& flags) {
  MOE_ASSIGN_OR_RETURN(SamplerOptions sampling, model_sampling(flags.engine.model));
  sampling.temperature = flags.temperature.value_or(sampling.temperature);
  sampling.top_k = flags.top_k.value_or(sampling.top_k);
  sampling.top_p = flags.top_p.value_or(sampling.top_p);
  sampling.min_p = flags.min_p.value_or(sampling.min_p);
  sampling.seed = flags.seed ? *flags.seed : std::random_device()();
  return sampling;
}

Result<ModelServiceOptions> chat_service_options(const ChatFlags& flags) {
  ModelServiceOptions options;
  options.model = flags.engine.model;
  options.chat_template = flags.chat_template;
  options.scheduler.snapshot_bytes = kChatSnapshotMib << 20U;
  options.on_notice = [](const std::string& line) {
    std::cerr << "moepack: note: " << line << "\n";
  };
  if (flags.tool_parser.empty()) return options;
  options.tool_format = find_tool_format(flags.tool_parser);
  if (options.tool_format.has_value()) return options;
  return invalid_argument("--tool-parser knows no " + printable(flags.tool_parser, 40),
                          "see moepack chat --help");
}

Result<std::unique_ptr<ModelService>> open_chat_service(const ChatFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const ModelServiceOptions options, chat_service_options(flags));
  EngineFlags engine_flags = flags.engine;
  engine_flags.snapshot_bytes = options.scheduler.snapshot_bytes;
  const std::uint64_t context = flags.context != 0 ? flags.context : kChatContext;
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, open_engine(engine_flags, context, 2));
  note_long_context(flags.context, engine->config());
  MOE_ASSIGN_OR_RETURN(
      Tokenizer tokenizer,
      Tokenizer::load(std::filesystem::path(flags.engine.model) / "tokenizer.json"));
  auto service = ModelService::open(std::move(engine), std::move(tokenizer), options);
  if (service.is_ok() && service.value()->model().chat_template.empty()) {
    return unsupported({.file = flags.engine.model}, "has no chat template",
                       "give one with --chat-template-file, or use moepack run");
  }
  return service;
}

// SIGTERM ends the program at once again, as it did before the model was opened.
void let_go_of_termination() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  (void)pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Result<bool> chat(const ChatFlags& flags) {
  MOE_RETURN_IF_ERROR(check_model_path(flags.engine.model));
  ChatRunOptions run = flags.run;
  run.keeps_history = !flags.no_history;
  MOE_RETURN_IF_ERROR(prepare_chat(run));
  MOE_ASSIGN_OR_RETURN(run.request.options.sampling, chat_sampling(flags));
  if (flags.max_tokens > 0) {
    run.request.options.max_tokens = static_cast<std::uint64_t>(flags.max_tokens);
  }
  if (!flags.think.empty()) run.request.thinks = flags.think == "on";
  auto signals = std::make_unique<SignalWatch>();  // Ctrl-C ends while the model is opened
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelService> service, open_chat_service(flags));
  signals.reset();
  hold_interrupts();
  let_go_of_termination();
  MOE_ASSIGN_OR_RETURN(const bool is_stopped, run_chat(*service, run));
  MOE_RETURN_IF_ERROR(service->finish(0));
  return is_stopped;
}

}  // namespace

void register_chat(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ChatFlags>();
  flags->engine.default_activations = kAnswerActivations;
  flags->engine.kv_cache_default = "bf16";
  CLI::App* command = app.add_subcommand("chat", "Talk with a model");
  add_engine_flags(*command, flags->engine);
  add_lane_flags(*command, flags->engine);
  add_message_flags(*command, *flags);
  add_chat_sampling_flags(*command, *flags);
  command->callback([&action, flags] {
    action = [flags] {
      const Result<bool> is_stopped = chat(*flags);
      if (!is_stopped.is_ok()) return fail(is_stopped.status());
      return is_stopped.value() ? kExitInterrupted : kExitOk;
    };
  });
}

}  // namespace moepack::cli
