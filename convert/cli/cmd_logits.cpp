#include "convert/cli/cmd_logits.h"

#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/kept_inputs.h"
#include "convert/cli/model_flags.h"
#include "convert/cli/output.h"
#include "convert/cli/token_input.h"

namespace moepack::cli {
namespace {

struct LogitsFlags {
  EngineFlags engine;
  std::string token_ids;
  std::string output;
  bool json = false;
};

Status run_logits(const LogitsFlags& flags) {
  const std::array<std::filesystem::path, 2> inputs{flags.engine.model, flags.token_ids};
  MOE_RETURN_IF_ERROR(check_keeps_inputs("-o", flags.output, inputs));
  MOE_ASSIGN_OR_RETURN(Output out, Output::open(flags.output));
  if (out.is_stdout() && flags.json) {
    return invalid_argument("the logits and --json cannot both go to stdout", "name a file");
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, read_token_ids(flags.token_ids));
  if (ids.empty()) return invalid_argument(flags.token_ids + " holds no token ids");
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, open_engine(flags.engine, ids.size()));
  const LogitsSink sink = [&](std::size_t, std::span<const float> logits) {
    return out.write(std::as_bytes(logits));
  };
  MOE_RETURN_IF_ERROR(engine->forward(ids, 0, sink));
  MOE_RETURN_IF_ERROR(engine->finish());
  MOE_RETURN_IF_ERROR(out.commit());
  const std::uint32_t vocab = engine->config().vocab_size;
  if (flags.json) {
    print_json_line(nlohmann::ordered_json{{"tokens", ids.size()},
                                           {"vocab_size", vocab},
                                           {"kernels", engine->kernels_name()},
                                           {"output", flags.output}});
  }
  std::cerr << printable(flags.output, 4096) << ": float32 [" << ids.size() << ", " << vocab
            << "]\n";
  return Status::ok();
}

}  // namespace

void register_logits(CLI::App& app, Action& action) {
  auto flags = std::make_shared<LogitsFlags>();
  CLI::App* command =
      app.add_subcommand("logits", "Write a model's logits for given token ids to a file");
  add_engine_flags(*command, flags->engine);
  command
      ->add_option("--token-ids", flags->token_ids,
                   "Raw little-endian int32 ids, or a JSON list of ids")
      ->required();
  command
      ->add_option("-o,--output", flags->output,
                   "float32 [tokens, vocabulary], little-endian; -: stdout")
      ->required();
  command->add_flag("--json", flags->json, "Print one JSON object on stdout");
  set_action(*command, action, flags, run_logits);
}

}  // namespace moepack::cli
