#include "convert/cli/cmd_run.h"

#include <array>
#include <fstream>
#include <future>
#include <iomanip>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "convert/cli/live_line.h"
#include "convert/cli/model_flags.h"
#include "convert/cli/model_path.h"
#include "convert/cli/number_range.h"
#include "convert/cli/output.h"
#include "convert/cli/progress.h"
#include "convert/cli/timeline_output.h"
#include "convert/cli/timing_output.h"
#include "convert/cli/token_input.h"
#include "formats/base/json.h"
#include "formats/base/limits.h"
#include "runtime/generate.h"
#include "runtime/store/cache_policy.h"

namespace moepack::cli {
namespace {

struct RunFlags {
  EngineFlags engine;
  std::string prompt;
  std::string prompt_file;
  std::string prompts_file;
  std::string prompt_cache;
  bool prompt_cache_read_only = false;
  std::int64_t max_tokens = 128;
  std::uint64_t context = 0;
  SamplerOptions sampling;
  bool json = false;
  bool ignore_eos = false;
  bool timing = false;
  TimelineFile timeline;
};

// -n as llama.cpp understands it.
std::uint64_t most_tokens(std::int64_t flag) {
  return flag < 0 ? std::numeric_limits<std::uint64_t>::max() : static_cast<std::uint64_t>(flag);
}

// Everything a prompt needs, opened once.
struct Session {
  TimelineFile timeline;  // outlives the engine
  std::unique_ptr<Engine> engine;
  std::optional<Tokenizer> tokenizer;
  GenerateOptions options;
};

// The tokenizer, while the weights are read.
std::future<Result<Tokenizer>> load_in_background(const std::filesystem::path& file) {
  const auto load = [file] { return Tokenizer::load(file); };
  try {
    return std::async(std::launch::async, load);
  } catch (const std::system_error&) {  // no thread: when it is asked for
    return std::async(std::launch::deferred, load);
  }
}

Result<std::optional<PromptCacheOptions>> prompt_cache_options(const RunFlags& flags) {
  std::optional<PromptCacheOptions> options;
  if (flags.prompt_cache.empty()) {
    if (!flags.prompt_cache_read_only) return options;
    return invalid_argument("--prompt-cache-ro without a file", "give --prompt-cache FILE too");
  }
  if (!flags.prompt_cache_read_only) {
    MOE_RETURN_IF_ERROR(check_named_file("--prompt-cache", flags.prompt_cache));
  }
  options = {.path = flags.prompt_cache, .read_only = flags.prompt_cache_read_only};
  return options;
}

Result<Session> open_session(const RunFlags& flags) {
  Session session;
  MOE_RETURN_IF_ERROR(check_model_path(flags.engine.model));
  const std::filesystem::path model = flags.engine.model;
  MOE_ASSIGN_OR_RETURN(session.options.prompt_cache, prompt_cache_options(flags));
  EngineFlags engine_flags = flags.engine;
  session.timeline = flags.timeline;
  MOE_RETURN_IF_ERROR(session.timeline.prepare(model));
  engine_flags.timeline = session.timeline.timeline();
  engine_flags.saves_sequence = session.options.prompt_cache.has_value();
  std::future<Result<Tokenizer>> tokenizer = load_in_background(model / "tokenizer.json");
  const std::uint64_t context = flags.context != 0 ? flags.context : kDefaultContext;
  auto engine = open_engine(engine_flags, context);
  MOE_ASSIGN_OR_RETURN(session.tokenizer, tokenizer.get());
  MOE_ASSIGN_OR_RETURN(session.engine, std::move(engine));
  note_long_context(flags.context, session.engine->config());
  if (flags.timing || engine_flags.timeline != nullptr) session.engine->stage_times().start();
  session.options.max_tokens = most_tokens(flags.max_tokens);
  session.options.sampling = flags.sampling;
  if (!flags.ignore_eos) {
    MOE_ASSIGN_OR_RETURN(session.options.stop_ids, read_stop_ids(model, session.engine->config()));
  }
  return session;
}

// Bytes a second, as it was measured when the way of reading was chosen; 0: it is not known.
double disk_rate_of(const Engine& engine) {
  return static_cast<double>(engine.io_choice().disk_bytes_per_second);
}

struct ReadStatistics {
  double hit_rate = 0;              // of expert uses, 0 … 1
  double gigabytes = 0;             // read from the pack
  double gigabytes_per_second = 0;  // while reading
};

ReadStatistics read_statistics(const ExpertStoreStats& stats) {
  ReadStatistics r;
  r.hit_rate = stats.hit_rate();
  r.gigabytes = static_cast<double>(stats.bytes_read) / 1e9;
  if (stats.read_seconds > 0) r.gigabytes_per_second = r.gigabytes / stats.read_seconds;
  return r;
}

// " (88 % of the disk's 1.41)", or nothing where the disk is not known.
std::string share_text(const ReadStatistics& reads, double disk_rate) {
  if (disk_rate <= 0) return "";
  std::ostringstream out;
  out << std::fixed << std::setprecision(0) << " ("
      << 100 * reads.gigabytes_per_second * 1e9 / disk_rate << " % of the disk's "
      << std::setprecision(2) << disk_rate / 1e9 << ")";
  return out.str();
}

// The passes after the prompt's, which gives the first token.
std::uint64_t decode_passes(const GenerateResult& result) {
  return result.tokens.empty() ? 0 : result.tokens.size() - 1;
}

nlohmann::ordered_json timing_json(const GenerateResult& result) {
  return {{"prompt", stages_json(result.prompt_stages, result.computed_tokens())},
          {"decode", stages_json(result.decode_stages, decode_passes(result))}};
}

nlohmann::ordered_json to_json(const GenerateResult& result, Engine& engine) {
  const ReadStatistics reads = read_statistics(engine.expert_stats());
  nlohmann::ordered_json json{{"text", result.text},
                              {"tokens", result.tokens},
                              {"stop_reason", stop_reason_name(result.reason)},
                              {"prompt_tokens", result.prompt_tokens},
                              {"prompt_tokens_reused", result.reuse.reused},
                              {"prompt_seconds", result.prompt_seconds},
                              {"prompt_tokens_per_second", result.prompt_rate()},
                              {"decode_tokens", result.tokens.size()},
                              {"decode_seconds", result.decode_seconds},
                              {"decode_tokens_per_second", result.decode_rate()},
                              {"cache_hit_rate", reads.hit_rate},
                              {"gb_read", reads.gigabytes},
                              {"gb_per_second", reads.gigabytes_per_second},
                              {"disk_rate_gb_s", nullptr},
                              {"share_of_disk_rate", nullptr},
                              {"lookahead", engine.options().store.lookahead},
                              {"experts_read_ahead", engine.expert_stats().ahead_reads},
                              {"experts_read_ahead_used", engine.expert_stats().ahead_used},
                              {"kernels", engine.kernels_name()},
                              {"activations", activation_type_name(engine.options().activations)},
                              {"kv_cache_type", kv_encoding_name(engine.options().kv_encoding)},
                              {"chunk", engine.options().chunk_tokens},
                              {"io", io_mode_name(engine.io_choice().mode)},
                              {"io_engine", io_engine_name(engine.io_choice().engine)},
                              {"cache_policy", cache_policy_name(engine.options().store.policy)}};
  if (const double rate = disk_rate_of(engine); rate > 0) {
    json["disk_rate_gb_s"] = rate / 1e9;
    json["share_of_disk_rate"] = reads.gigabytes_per_second * 1e9 / rate;
  }
  if (engine.options().car.is_on()) {
    json["routing_agreement"] = engine.routing_agreement().share();
  }
  if (engine.stage_times().is_running()) json["stages_ms_per_token"] = timing_json(result);
  return json;
}

// What of the file could not be used, and why.
std::string unused_text(const PromptReuse& reuse, std::size_t prompt_tokens) {
  if (!reuse.has_file) return "";
  if (reuse.is_other_kind) return "; its states come of other kernels, activations or chunks";
  if (reuse.common == reuse.saved || reuse.reused != 0) return "";
  if (reuse.common == prompt_tokens)
    return "; it goes beyond the prompt, and its state cannot be cut";
  return "; its text is another from token " + std::to_string(reuse.common) + " on";
}

// The line about --prompt-cache.
std::string reuse_text(const PromptReuse& reuse, std::size_t prompt_tokens,
                       const std::string& file) {
  if (!reuse.has_file && reuse.written == 0) {
    return "prompt cache: there is no " + file + " and none was written\n";
  }
  std::string text = "prompt cache: " + std::to_string(reuse.reused) + " of " +
                     std::to_string(prompt_tokens) + " tokens taken from " + file;
  if (!reuse.has_file) text = "prompt cache: " + file + " is new";
  text += unused_text(reuse, prompt_tokens);
  if (reuse.written != 0) text += "; " + std::to_string(reuse.written) + " saved in it";
  return text + "\n";
}

void print_statistics(const GenerateResult& result, const Session& session) {
  Engine& engine = *session.engine;
  const ExpertStoreStats stats = engine.expert_stats();
  const ReadStatistics reads = read_statistics(stats);
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  out << "\nprompt: " << result.computed_tokens() << " tokens, " << result.prompt_rate()
      << " tokens/s; decode: " << result.tokens.size() << " tokens, " << result.decode_rate()
      << " tokens/s\nexperts: " << 100.0 * reads.hit_rate << " % cache hits, "
      << std::setprecision(3) << reads.gigabytes << " GB read, " << reads.gigabytes_per_second
      << " GB/s while reading" << share_text(reads, disk_rate_of(engine))
      << "; stopped by: " << stop_reason_name(result.reason)
      << "\nkernels: " << engine.kernels_name()
      << ", activations: " << activation_type_name(engine.options().activations)
      << ", keys and values: " << kv_encoding_name(engine.options().kv_encoding)
      << ", chunk: " << engine.options().chunk_tokens << "\n";
  if (engine.options().car.is_on()) out << agreement_text(engine.routing_agreement());
  if (stats.ahead_reads > 0) {
    out << "read ahead: " << stats.ahead_reads << " experts, " << stats.ahead_used << " used\n";
  }
  if (session.options.prompt_cache.has_value()) {
    out << reuse_text(result.reuse, result.prompt_tokens,
                      session.options.prompt_cache->path.string());
  }
  if (engine.stage_times().is_running()) {
    out << "\n"
        << timing_table(std::array<TimedPart, 2>{
               TimedPart{"prompt", result.prompt_stages, result.computed_tokens()},
               TimedPart{"decode", result.decode_stages, decode_passes(result)}});
  }
  std::cerr << out.str();
}

Result<std::vector<std::int32_t>> prompt_ids(const std::string& prompt, const Session& session) {
  MOE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, session.tokenizer->encode(prompt));
  session.tokenizer->begin_text(ids);
  return ids;
}

Status run_one(const RunFlags& flags) {
  std::string prompt = flags.prompt;
  if (!flags.prompt_file.empty()) {
    MOE_ASSIGN_OR_RETURN(prompt, read_utf8_text(flags.prompt_file));
  }
  MOE_ASSIGN_OR_RETURN(Session session, open_session(flags));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, prompt_ids(prompt, session));
  const bool shares_terminal = !flags.json && stdout_is_terminal();
  LiveLine live(*session.engine, "prompt", stderr_is_terminal(), disk_rate_of(*session.engine));
  bool is_first = true;
  const auto stream = [&](std::string_view piece) {
    if (std::exchange(is_first, false)) {
      if (shares_terminal) live.stop();
      live.set_phase("decoding", true);
    }
    if (!flags.json) std::cout << piece << std::flush;
  };
  const auto done = generate(*session.engine, *session.tokenizer, ids, session.options, stream);
  live.stop();
  MOE_ASSIGN_OR_RETURN(const GenerateResult result, done);
  if (flags.json) {
    print_json_line(to_json(result, *session.engine));
  } else {
    std::cout << std::endl;
  }
  print_statistics(result, session);
  MOE_RETURN_IF_ERROR(session.engine->finish());
  return session.timeline.write();
}

// The "prompt" of one line.
Result<std::string> prompt_of_line(const std::string& line, const std::string& place) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json doc, parse_json(line, Where{.file = place}));
  const auto found = doc.is_object() ? doc.find("prompt") : doc.end();
  if (!doc.is_object() || found == doc.end() || !found->is_string()) {
    return corrupt(Where{.file = place}, "has no text under \"prompt\"");
  }
  return found->get<std::string>();
}

// The answer as one JSON object.
Result<nlohmann::ordered_json> answer(const std::string& prompt, Session& session) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, prompt_ids(prompt, session));
  session.engine->reset_stats();
  MOE_ASSIGN_OR_RETURN(const GenerateResult result,
                       generate(*session.engine, *session.tokenizer, ids, session.options, {}));
  nlohmann::ordered_json object{{"prompt", prompt}};
  object.update(to_json(result, *session.engine));
  return object;
}

// One JSON object a line in, one a line out; every prompt starts from a fresh state. The first line
// that cannot be answered ends it; the answers before it are out.
Status run_many(const RunFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text(flags.prompts_file));
  MOE_ASSIGN_OR_RETURN(Session session, open_session(flags));
  std::istringstream lines(text);
  std::string line;
  bool has_prompts = false;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    has_prompts = true;
    const std::string place = flags.prompts_file + " line " + std::to_string(number);
    MOE_ASSIGN_OR_RETURN(const std::string prompt, prompt_of_line(line, place));
    const auto object = answer(prompt, session);
    if (!object.is_ok()) {
      return make_error(object.status().code(), Where{.file = place}, object.status().message());
    }
    print_json_line(object.value());
    std::cout << std::flush;
  }
  if (!has_prompts) {
    std::cerr << "moepack: note: " << printable(flags.prompts_file) << " holds no prompt\n";
  }
  MOE_RETURN_IF_ERROR(session.engine->finish());
  return session.timeline.write();
}

void add_flags(CLI::App& command, RunFlags& flags) {
  flags.engine.default_activations = kAnswerActivations;
  flags.engine.kv_cache_default = "bf16";
  add_engine_flags(command, flags.engine);
  add_lane_flags(command, flags.engine);
  CLI::Option_group* input = command.add_option_group("prompt");
  input->add_option("-p,--prompt", flags.prompt,
                    "Text to continue, taken as it is (special tokens are recognised)");
  input->add_option("-f,--file", flags.prompt_file, "The same from a file");
  input->add_option("--prompts-file", flags.prompts_file,
                    "JSON lines with \"prompt\"; answers come as JSON lines on stdout");
  input->require_option(1);
  command.add_option("--prompt-cache", flags.prompt_cache,
                     "Keep the state of the prompt in this file: what a prompt has in common with "
                     "the file's is not computed again");
  command.add_flag("--prompt-cache-ro", flags.prompt_cache_read_only,
                   "Use that file and leave it as it is");
  command
      .add_option("-n,--predict", flags.max_tokens,
                  "Most new tokens; -1: until the text ends or the context is full")
      ->check(whole_number(-1, std::uint64_t{1} << 30))
      ->capture_default_str();
  command.add_option("-c,--ctx-size", flags.context, "Most tokens, prompt included; 0: 4096")
      ->check(whole_number(0, kMaxSequenceTokens))
      ->capture_default_str();
  flags.sampling.temperature = 0.0F;
  command.add_option("--temp", flags.sampling.temperature, "Temperature; 0: greedy")
      ->check(real_number(0, 1000))
      ->capture_default_str();
  command.add_option("--top-k", flags.sampling.top_k, "Keep the k most probable; 0: all")
      ->check(whole_number(0, std::numeric_limits<std::int32_t>::max()))
      ->capture_default_str();
  command.add_option("--top-p", flags.sampling.top_p, "Keep the most probable up to this sum")
      ->check(real_number(0, 1))
      ->capture_default_str();
  command
      .add_option("--min-p", flags.sampling.min_p,
                  "Drop what is less probable than this share of the most probable")
      ->check(real_number(0, 1))
      ->capture_default_str();
  command.add_option("-s,--seed", flags.sampling.seed, "Seed of the draw")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  command.add_flag("--ignore-eos", flags.ignore_eos, "Do not stop at the model's end tokens");
  command.add_flag("--timing", flags.timing, "Say how long each stage of a token takes");
  flags.timeline.add_flag(command);
  command.add_flag("--json", flags.json, "Print one JSON object on stdout instead of the text");
}

}  // namespace

void register_run(CLI::App& app, Action& action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Continue a text");
  add_flags(*command, *flags);
  set_action(*command, action, flags,
             [](const RunFlags& f) { return f.prompts_file.empty() ? run_one(f) : run_many(f); });
}

}  // namespace moepack::cli
