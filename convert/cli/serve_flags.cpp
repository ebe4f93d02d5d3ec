#include "convert/cli/serve_flags.h"

#include <filesystem>
#include <limits>
#include <sstream>
#include <system_error>

#include "convert/cli/number_range.h"
#include "convert/cli/token_input.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "runtime/chat/tool_format.h"
#include "runtime/serve/access_rules.h"

namespace moepack::cli {
namespace {

std::string check_origin(const std::string& text) {
  return is_cors_origin(text)
             ? ""
             : printable(text, 64) + " is no origin, as in https://example.org, localhost or *";
}

void add_address_flags(CLI::App& command, ServeFlags& flags) {
  HttpOptions& http = flags.server.http;
  command.add_option("--host", http.host, "Address or name to listen on")->capture_default_str();
  command.add_option("--port", http.port, "Port; 0: one that is free")
      ->check(whole_number(0, std::numeric_limits<std::uint16_t>::max()))
      ->capture_default_str();
  command.add_option("--alias", flags.alias, "What clients call the model; else its directory");
  command
      .add_option("--api-key", flags.api_keys,
                  "Key that clients must send; several may be given (see --api-key-file)")
      ->take_all();
  command.add_option("--api-key-file", flags.api_key_file, "The same, a key a line");
  command
      .add_option("--cors-origins", flags.server.access.cors_origins,
                  "Origins whose pages may use the server, separated by commas; \"localhost\": "
                  "those of this machine; \"*\": all")
      ->delimiter(',')
      ->check(CLI::Validator(check_origin, "ORIGIN"));
  command
      .add_option("--allow-host", flags.server.access.hosts,
                  "Names under which clients may call the server, besides localhost and addresses")
      ->delimiter(',');
  command.add_option("--max-body-mb", flags.max_body_mib, "Most MiB of a request")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  command
      .add_option("--ping-seconds", flags.server.ping_seconds,
                  "Seconds of silence after which a stream gets a comment; 0: none")
      ->check(real_number(0, 3600))
      ->capture_default_str();
  command.add_flag("-v,--verbose", flags.is_verbose,
                   "Write a line for each request to stderr, without anything of its content");
  command.add_flag("--no-metrics", flags.hides_metrics, "Do not answer GET /metrics");
  command.add_flag("--slots", flags.server.shows_slots, "Answer GET /slots");
  command
      .add_option("--shutdown-grace", flags.grace_seconds,
                  "Seconds that answers may go on after the signal to end")
      ->check(real_number(0, 86400))
      ->capture_default_str();
}

void add_service_flags(CLI::App& command, ServeFlags& flags) {
  command.add_option("-c,--ctx-size", flags.context, "Most tokens of a conversation; 0: 16384")
      ->check(whole_number(0, kMaxSequenceTokens))
      ->capture_default_str();
  command.add_option("--parallel", flags.parallel, "Answers that are computed at the same time")
      ->check(whole_number(1, 256))
      ->capture_default_str();
  command.add_option("--queue", flags.queue, "Requests that may wait; more are refused with 429")
      ->check(whole_number(0, 100000))
      ->capture_default_str();
  command
      .add_option("--slice", flags.slice_tokens,
                  "Tokens of a prompt that are computed between two steps of other answers")
      ->check(whole_number(1, kMaxSequenceTokens))
      ->capture_default_str();
  command
      .add_option("--turns", flags.turns,
                  "Answers at the same time are computed by turns of a second or so; auto: where "
                  "experts are read from the disk and that is faster; on, off")
      ->capture_default_str();
  command
      .add_option("--checkpoint-mb", flags.snapshot_mib,
                  "MiB for states of earlier turns, from which a conversation goes on; 0: none")
      ->check(whole_number(0, kMaxMebibytes))
      ->capture_default_str();
  command.add_option("--slot-save-path", flags.slot_save_path,
                     "Directory of states that are kept on disk");
  command.add_option("--chat-template-file", flags.chat_template,
                     "Chat template (Jinja) instead of the model's own");
  command.add_option("--tool-parser", flags.tool_parser,
                     "How the model writes its calls of tools; else as its template tells: none, "
                     "hermes, qwen-xml, harmony, deepseek, dsml, glm, kimi, minimax");
}

void add_sampling_flags(CLI::App& command, ServeFlags& flags) {
  DefaultSampling& defaults = flags.server.defaults;
  command.add_option("--temp", defaults.temperature, "Temperature of requests that name none")
      ->check(real_number(0, 1000));
  command.add_option("--top-k", defaults.top_k, "The same of top-k")
      ->check(whole_number(0, std::numeric_limits<std::int32_t>::max()));
  command.add_option("--top-p", defaults.top_p, "The same of top-p")->check(real_number(0, 1));
  command.add_option("--min-p", defaults.min_p, "The same of min-p")->check(real_number(0, 1));
  command
      .add_option("-s,--seed", defaults.seed, "The same of the seed; else each has a random one")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
  command
      .add_option("-n,--predict", flags.max_tokens,
                  "Most new tokens of requests that name none; -1: to the end of the context")
      ->check(whole_number(-1, std::uint64_t{1} << 30))
      ->capture_default_str();
}

Status read_keys(const std::string& file, std::vector<std::string>& keys) {
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text(file));
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    keys.push_back(line.substr(first, line.find_last_not_of(" \t\r") + 1 - first));
  }
  if (!keys.empty()) return Status::ok();
  return corrupt({.file = file}, "has no key", "write one key a line");
}

}  // namespace

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  flags.engine.default_activations = kAnswerActivations;
  flags.engine.kv_cache_default = "bf16";
  add_engine_flags(command, flags.engine);
  add_lane_flags(command, flags.engine);
  add_address_flags(command, flags);
  add_service_flags(command, flags);
  add_sampling_flags(command, flags);
}

Result<ServerOptions> server_options(const ServeFlags& flags) {
  ServerOptions options = flags.server;
  options.access.api_keys = flags.api_keys;
  for (const std::string& key : flags.api_keys) {
    if (key.empty()) return invalid_argument("--api-key is empty", "give a key");
  }
  if (!flags.api_key_file.empty()) {
    MOE_RETURN_IF_ERROR(read_keys(flags.api_key_file, options.access.api_keys));
  }
  options.access.hosts.push_back(options.http.host);
  options.http.max_body_bytes = static_cast<std::size_t>(flags.max_body_mib) << 20U;
  options.shows_metrics = !flags.hides_metrics;
  options.model_id = flags.alias.empty() ? directory_name(flags.engine.model) : flags.alias;
  options.model_path = flags.engine.model;
  if (flags.max_tokens >= 0) {
    options.defaults.max_tokens = static_cast<std::uint64_t>(flags.max_tokens);
  }
  return options;
}

Result<ModelServiceOptions> service_options(const ServeFlags& flags) {
  ModelServiceOptions options;
  options.model = flags.engine.model;
  options.id = flags.alias;
  options.chat_template = flags.chat_template;
  if (!flags.tool_parser.empty()) {
    options.tool_format = find_tool_format(flags.tool_parser);
    if (!options.tool_format.has_value()) {
      return invalid_argument("--tool-parser knows no " + printable(flags.tool_parser, 40),
                              "see moepack serve --help");
    }
  }
  options.scheduler.parallel = flags.parallel;
  options.scheduler.queue_limit = static_cast<std::size_t>(flags.queue);
  options.scheduler.slice_tokens = flags.slice_tokens;
  MOE_ASSIGN_OR_RETURN(options.scheduler.turns, parse_turn_use(flags.turns));
  options.scheduler.snapshot_bytes = flags.snapshot_mib << 20U;
  options.scheduler.save_path = flags.slot_save_path;
  std::error_code ignored;
  if (!flags.slot_save_path.empty() &&
      !std::filesystem::is_directory(flags.slot_save_path, ignored)) {
    return not_found({.file = flags.slot_save_path}, "is no directory",
                     "make it, or name another with --slot-save-path");
  }
  return options;
}

}  // namespace moepack::cli
