#include "convert/cli/cmd_extract.h"

#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/kept_inputs.h"
#include "convert/cli/output.h"
#include "convert/cli/progress.h"
#include "convert/inspect/extract.h"
#include "formats/weights/format_json.h"

namespace moepack::cli {
namespace {

struct ExtractFlags {
  std::string path;
  std::string tensor;
  std::string output;
  std::string pack;
  bool as_f32 = false;
  bool json = false;
};

Status run_extract(const ExtractFlags& flags) {
  const std::array<std::filesystem::path, 1> inputs{flags.path};
  MOE_RETURN_IF_ERROR(check_keeps_inputs("-o", flags.output, inputs));
  MOE_ASSIGN_OR_RETURN(Output out, Output::open(flags.output));
  if (out.is_stdout() && flags.json) {
    return invalid_argument("the tensor and --json cannot both go to stdout", "name a file");
  }
  MOE_ASSIGN_OR_RETURN(
      const ExtractedTensor tensor,
      extract_tensor(
          {.path = flags.path, .tensor = flags.tensor, .pack = flags.pack, .as_f32 = flags.as_f32},
          [&out](std::span<const std::byte> bytes) { return out.write(bytes); }));
  MOE_RETURN_IF_ERROR(out.commit());
  if (flags.json) {
    print_json_line(nlohmann::ordered_json{{"name", tensor.name},
                                           {"dtype", tensor.dtype},
                                           {"shape", tensor.shape},
                                           {"bytes", tensor.bytes},
                                           {"file", tensor.file},
                                           {"offset", tensor.offset},
                                           {"output", flags.output}});
  }
  std::cerr << printable(tensor.name) << ": " << tensor.dtype << " " << shape_text(tensor.shape)
            << ", " << format_bytes(tensor.bytes) << "\n";
  return Status::ok();
}

}  // namespace

void register_extract(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ExtractFlags>();
  CLI::App* command = app.add_subcommand("extract", "Write one tensor to a file");
  command
      ->add_option("path", flags->path,
                   "Checkpoint, safetensors or GGUF file, model directory or pack directory")
      ->required();
  command
      ->add_option("tensor", flags->tensor,
                   "Name of the tensor, with or without .weight; experts are called "
                   "model.layers.L.mlp.experts.E.gate_proj")
      ->required();
  command->add_option("-o,--output", flags->output, "File to write; -: stdout")->required();
  command->add_flag("--f32", flags->as_f32,
                    "Decoded, as little-endian float32; else the stored bytes");
  command->add_option("--pack", flags->pack, "Expert pack of a model directory");
  command->add_flag("--json", flags->json, "Print one JSON object on stdout");
  set_action(*command, action, flags, run_extract);
}

}  // namespace moepack::cli
