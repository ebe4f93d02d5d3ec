#include "convert/cli/cmd_index.h"

#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/kept_inputs.h"
#include "convert/cli/output.h"
#include "convert/cli/progress.h"
#include "convert/inspect/expert_index.h"

namespace moepack::cli {
namespace {

struct IndexFlags {
  std::string source;
  std::string output;
  bool json = false;
};

Status run_index(const IndexFlags& flags) {
  const std::array<std::filesystem::path, 1> inputs{flags.source};
  MOE_RETURN_IF_ERROR(check_keeps_inputs("-o", flags.output, inputs));
  MOE_ASSIGN_OR_RETURN(Output out, Output::open(flags.output));
  if (out.is_stdout() && flags.json) {
    return invalid_argument("the index and --json cannot both go to stdout", "name a file");
  }
  MOE_ASSIGN_OR_RETURN(const ExpertIndexSummary index,
                       write_expert_index(flags.source, [&out](std::span<const std::byte> bytes) {
                         return out.write(bytes);
                       }));
  MOE_RETURN_IF_ERROR(out.commit());
  if (flags.json) {
    print_json_line(nlohmann::ordered_json{{"source", index.directory},
                                           {"output", flags.output},
                                           {"num_layers", index.num_layers},
                                           {"num_experts", index.num_experts},
                                           {"expert_bytes", index.expert_bytes},
                                           {"index_bytes", index.index_bytes}});
  }
  std::cerr << printable(flags.output, 4096) << ": " << index.num_layers << " layers x "
            << index.num_experts << " experts, " << format_bytes(index.expert_bytes) << "\n";
  return Status::ok();
}

}  // namespace

void register_index(CLI::App& app, Action& action) {
  auto flags = std::make_shared<IndexFlags>();
  CLI::App* command =
      app.add_subcommand("index", "Write where every expert of a checkpoint lies, as JSON");
  command
      ->add_option("source", flags->source,
                   "Checkpoint (a directory with config.json and safetensors, or a HuggingFace "
                   "cache) or GGUF file")
      ->required();
  command->add_option("-o,--output", flags->output, "File to write; -: stdout")->required();
  command->add_flag("--json", flags->json, "Print a summary as one JSON object on stdout");
  set_action(*command, action, flags, run_index);
}

}  // namespace moepack::cli
