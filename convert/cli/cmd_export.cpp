#include "convert/cli/cmd_export.h"

#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/given_flags.h"
#include "convert/cli/model_path.h"
#include "convert/cli/number_range.h"
#include "convert/cli/output.h"
#include "convert/cli/progress.h"
#include "convert/export/flashmoe/export.h"
#include "convert/export/gguf/export_gguf.h"

namespace moepack::cli {
namespace {

struct ExportFlags {
  std::string model;
  std::string output;
  std::string pack;
  double split_gb = 0;
  std::string split_names = "writer";
  std::string vocab_bytes = "raw";
  bool gguf = false;
  bool tokenizer_only = false;
  bool no_tokenizer = false;
  std::uint32_t threads = 0;
  bool json = false;
  bool quiet = false;
  GivenFlags given;
};

ExportOptions options_of(const ExportFlags& flags) {
  return {.model = flags.model,
          .pack = flags.pack,
          .output = flags.output,
          .split_bytes = static_cast<std::uint64_t>(flags.split_gb * 1e9),
          .split_names = flags.split_names == "loader" ? SplitNames::kLoader : SplitNames::kWriter,
          .vocab_bytes = flags.vocab_bytes == "bpe" ? VocabBytes::kBpe : VocabBytes::kRaw,
          .tokenizer_only = flags.tokenizer_only,
          .without_tokenizer = flags.no_tokenizer,
          .threads = flags.threads};
}

void print_json(const ExportReport& report, const ExportFlags& flags) {
  nlohmann::ordered_json json{{"model", report.model}, {"output", flags.output}};
  if (!flags.tokenizer_only) {
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const ExportChunk& chunk : report.weight_files) {
      files.push_back({{"file", chunk.file}, {"size", chunk.size}});
    }
    nlohmann::ordered_json rounded = nlohmann::ordered_json::array();
    for (const RoundedTensor& tensor : report.rounded) {
      rounded.push_back({{"name", tensor.name}, {"from", tensor.from}, {"to", tensor.to}});
    }
    json.update({{"pack", report.pack},
                 {"num_tensors", report.num_tensors},
                 {"weight_files", files},
                 {"rounded_tensors", rounded},
                 {"folded_norms", report.folded_norms.size()},
                 {"expert_directory", report.expert_directory},
                 {"expert_bits", report.expert_bits},
                 {"expert_size", report.expert_size},
                 {"linked_layers", report.linked_layers},
                 {"written_layers", report.written_layers}});
  }
  json["vocab_bytes"] = report.has_tokenizer ? flags.vocab_bytes : "none";
  json["vocab_tokens"] = report.vocab_tokens;
  json["merges"] = report.merges;
  json["added_tokens"] = report.added_tokens;
  json["vocab_entries"] = report.vocab_entries;
  json["vocab_gaps"] = report.vocab_gaps;
  json["copied_files"] = report.copied_files;
  json["notes"] = report.notes;
  json["seconds"] = report.seconds;
  print_json_line(json);
}

void print_weights(const ExportReport& report) {
  std::uint64_t bytes = 0;
  for (const ExportChunk& chunk : report.weight_files) bytes += chunk.size;
  std::cerr << "weights: " << report.num_tensors << " tensors, " << format_bytes(bytes) << " in "
            << report.weight_files.size() << " file(s)\n";
  // One line for each pair of formats; all names are in --json.
  std::map<std::string, std::vector<std::string>> rounded;
  for (const RoundedTensor& tensor : report.rounded) {
    rounded[tensor.from + " to " + tensor.to].push_back(tensor.name);
  }
  for (const auto& [what, names] : rounded) {
    std::cerr << "rounded from " << what << ": " << names.size() << " (" << printable(names.front())
              << (names.size() > 1 ? ", ...)" : ")") << "\n";
  }
  if (!report.folded_norms.empty()) {
    std::cerr << "norms stored as 1 + w: " << report.folded_norms.size() << "\n";
  }
  std::cerr << report.expert_directory << ": " << report.linked_layers << " layers linked, "
            << report.written_layers << " written, " << report.expert_bits << " bits, "
            << report.expert_size << " bytes an expert\n";
}

void print_summary(const ExportReport& report, const ExportFlags& flags) {
  if (!flags.tokenizer_only) print_weights(report);
  if (report.has_tokenizer) {
    std::cerr << "vocab.bin: " << report.vocab_entries << " ids, " << report.vocab_gaps
              << " of them empty, " << flags.vocab_bytes
              << " bytes; tokenizer.bin: " << report.merges << " merges, " << report.added_tokens
              << " added tokens\n";
  }
  for (const std::string& note : report.notes) std::cerr << "note: " << note << "\n";
}

nlohmann::ordered_json gguf_json(const GgufExportReport& report, const ExportFlags& flags) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (const GgufTypeTally& type : report.types) {
    types.push_back({{"type", type.type}, {"tensors", type.tensors}, {"bytes", type.bytes}});
  }
  nlohmann::ordered_json blocks = nlohmann::ordered_json::array();
  for (const auto& [what, tensors] : report.blocks) {
    blocks.push_back({{"what", what}, {"tensors", tensors}});
  }
  return {{"model", report.model},
          {"output", flags.output},
          {"pack", report.pack},
          {"architecture", report.architecture},
          {"file_size", report.file_size},
          {"num_tensors", report.num_tensors},
          {"types", types},
          {"affine_blocks", blocks},
          {"notes", report.notes},
          {"seconds", report.seconds}};
}

void print_gguf_summary(const GgufExportReport& report) {
  std::cerr << report.architecture << ": " << report.num_tensors << " tensors, "
            << format_bytes(report.file_size) << "\n";
  for (const GgufTypeTally& type : report.types) {
    std::cerr << "  " << type.type << ": " << type.tensors << " tensors, "
              << format_bytes(type.bytes) << "\n";
  }
  for (const auto& [what, tensors] : report.blocks) {
    std::cerr << "stored " << what << ": " << tensors << " tensors\n";
  }
  for (const std::string& note : report.notes) std::cerr << "note: " << note << "\n";
}

// What was written: a directory or a GGUF file.
struct ExportOutcome {
  ExportReport directory;
  GgufExportReport gguf;
};

Status check_gguf_flags(const ExportFlags& flags) {
  const char* other = nullptr;
  if (flags.split_gb != 0) other = "--split";
  if (flags.split_names != "writer") other = "--split-names";
  if (flags.vocab_bytes != "raw") other = "--vocab-bytes";
  if (flags.tokenizer_only) other = "--tokenizer-only";
  if (flags.no_tokenizer) other = "--no-tokenizer";
  if (flags.output == kStdoutName) {
    return invalid_argument("a GGUF file cannot go to stdout", "name a file that does not exist");
  }
  if (other == nullptr) return Status::ok();
  return invalid_argument(std::string(other) + " is for the flash-moe engines' directory",
                          "leave out one of --gguf and " + std::string(other));
}

// Flags of a directory that would do nothing.
Status check_directory_flags(const ExportFlags& flags) {
  if (flags.tokenizer_only) {
    MOE_RETURN_IF_ERROR(
        flags.given.check_idle({"--pack", "--split", "--split-names"}, "beside --tokenizer-only"));
  }
  if (flags.split_names == "writer" || flags.split_gb != 0) return Status::ok();
  return invalid_argument("--split-names does nothing without --split",
                          "leave it out, or give --split");
}

Result<ExportOutcome> run(const ExportFlags& flags) {
  ExportOutcome outcome;
  MOE_RETURN_IF_ERROR(flags.gguf ? check_gguf_flags(flags) : check_directory_flags(flags));
  MOE_RETURN_IF_ERROR(check_model_path(flags.model));
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  if (flags.gguf) {
    MOE_ASSIGN_OR_RETURN(outcome.gguf, export_gguf({.model = flags.model,
                                                    .pack = flags.pack,
                                                    .output = flags.output,
                                                    .threads = flags.threads},
                                                   line.callback()));
  } else {
    MOE_ASSIGN_OR_RETURN(outcome.directory, export_model(options_of(flags), line.callback()));
  }
  return outcome;
}

void print_outcome(const ExportOutcome& outcome, const ExportFlags& flags) {
  if (flags.gguf) return print_gguf_summary(outcome.gguf);
  print_summary(outcome.directory, flags);
}

void print_outcome_json(const ExportOutcome& outcome, const ExportFlags& flags) {
  if (flags.gguf) return print_json_line(gguf_json(outcome.gguf, flags));
  print_json(outcome.directory, flags);
}

void add_flags(CLI::App& command, ExportFlags& flags) {
  command.add_option("-m,--model,MODEL", flags.model, "Model directory")->required();
  command
      .add_option("-o,--output", flags.output,
                  "Directory to write; must not exist or be empty. With --gguf a file that does "
                  "not exist")
      ->required();
  command.add_flag("--gguf", flags.gguf,
                   "Write one GGUF file, for llama.cpp; what it cannot hold exactly is refused");
  command.add_option("--pack", flags.pack, "Expert pack of the model: NAME or packed_experts_NAME");
  command
      .add_option("--split", flags.split_gb,
                  "Largest weight file in GB (1e9 bytes), for engines with a buffer limit; 0: one")
      ->check(real_number(0, 1e9));
  command
      .add_option("--split-names", flags.split_names,
                  "writer: model_weights.bin, model_weights_1.bin, ...; loader: "
                  "model_weights_0.bin and model_weights_1.bin")
      ->check(CLI::IsMember({"writer", "loader"}))
      ->capture_default_str();
  command.add_flag("--tokenizer-only", flags.tokenizer_only,
                   "Write tokenizer.bin and vocab.bin alone; MODEL is any directory with "
                   "tokenizer.json");
  command.add_flag("--no-tokenizer", flags.no_tokenizer, "Go on without tokenizer.json");
  command
      .add_option("--vocab-bytes", flags.vocab_bytes,
                  "What vocab.bin holds: raw bytes, or text in the byte-level alphabet")
      ->check(CLI::IsMember({"raw", "bpe"}))
      ->capture_default_str();
  add_threads(command, flags.threads);
  add_report_flags(command, flags.json, flags.quiet);
}

}  // namespace

void register_export(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = app.add_subcommand(
      "export", "Write a directory that the flash-moe engines run, or a GGUF file");
  add_flags(*command, *flags);
  flags->given = GivenFlags(*command);
  set_reporting_action(*command, action, flags, run, print_outcome, print_outcome_json);
}

}  // namespace moepack::cli
