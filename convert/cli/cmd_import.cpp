#include "convert/cli/cmd_import.h"

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/progress.h"
#include "convert/cli/quantizer_flags.h"
#include "convert/export/flashmoe/import.h"

namespace moepack::cli {
namespace {

struct ImportFlags {
  std::string directory;
  std::string model;
  std::string expert_format;
  std::string down_format;
  std::uint32_t group_size = 64;
  std::string scale_dtype = "bf16";
  std::uint32_t threads = 0;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
  GivenFlags given;
};

// The format that `name` stands for: nullopt for no name, kInvalidArgument for one that is no
// format.
Result<std::optional<WeightFormat>> format_of(const std::string& name, const ImportFlags& flags) {
  if (name.empty()) return std::optional<WeightFormat>();
  const auto id = qformat_from_name(name);
  if (!id.has_value()) {
    std::string known;
    for (const QFormatInfo& info : qformats()) {
      known += (known.empty() ? "" : ", ") + std::string(info.name);
    }
    return invalid_argument("\"" + printable(name, 32) + "\" is no weight format",
                            "known are " + known);
  }
  WeightFormat format{.id = *id};
  if (is_affine(format)) {
    format.group_size = flags.group_size;
    format.scale_type = flags.scale_dtype == "f16" ? DType::kF16 : DType::kBf16;
  }
  return std::optional<WeightFormat>(format);
}

void print_json(const ImportReport& report, const ImportFlags& flags) {
  nlohmann::ordered_json packs = nlohmann::ordered_json::array();
  for (const ImportedPack& pack : report.packs) {
    packs.push_back({{"pack", pack.name},
                     {"described_by", pack.manifest},
                     {"imported", !pack.was_native && !flags.dry_run},
                     {"num_layers", pack.num_layers},
                     {"num_experts", pack.num_experts},
                     {"formats", pack.formats},
                     {"page_size", pack.page_size},
                     {"bytes", pack.bytes}});
  }
  nlohmann::ordered_json resident;
  if (report.has_residents) {
    resident = {{"imported", !report.residents_were_native && !flags.dry_run},
                {"files", report.resident_files},
                {"bytes", report.resident_bytes}};
  }
  nlohmann::ordered_json json{{"model", report.model},
                              {"dry_run", flags.dry_run},
                              {"packs", packs},
                              {"resident", resident},
                              {"bytes_read", flags.dry_run ? 0 : report.bytes_read},
                              {"threads", report.threads}};
  if (!flags.dry_run) json["seconds"] = report.seconds;
  print_json_line(json);
}

void print_summary(const ImportReport& report, const ImportFlags& flags) {
  const char* done = flags.dry_run ? "would be imported" : "imported";
  for (const ImportedPack& pack : report.packs) {
    std::cerr << printable(pack.name) << ": ";
    if (pack.was_native) {
      std::cerr << "has a manifest of moepack already\n";
      continue;
    }
    std::cerr << pack.num_layers << " layers x " << pack.num_experts << " experts,";
    for (const std::string& format : pack.formats) std::cerr << " " << format;
    std::cerr << ", " << format_bytes(pack.bytes) << ", " << done << " from " << pack.manifest
              << "\n";
  }
  if (report.has_residents && !report.residents_were_native) {
    std::cerr << "resident tensors: " << report.resident_files.size() << " files, "
              << format_bytes(report.resident_bytes) << ", " << done << "\n";
  }
}

// A pack with a manifest says its group size and its scales itself.
Status check_affine_flags(const ImportFlags& flags, const ImportOptions& options) {
  for (const std::optional<WeightFormat>& format : {options.expert_format, options.down_format}) {
    if (format.has_value() && is_affine(*format)) return Status::ok();
  }
  return flags.given.check_idle({"--group-size", "--scale-dtype"}, "without --expert-format of q");
}

Result<ImportReport> run(const ImportFlags& flags) {
  ImportOptions options;
  options.directory = flags.directory;
  options.model = flags.model;
  MOE_ASSIGN_OR_RETURN(options.expert_format, format_of(flags.expert_format, flags));
  MOE_ASSIGN_OR_RETURN(options.down_format, format_of(flags.down_format, flags));
  options.threads = flags.threads;
  options.dry_run = flags.dry_run;
  if (options.down_format.has_value() && !options.expert_format.has_value()) {
    return invalid_argument("--down-format alone says nothing about gate and up",
                            "give --expert-format too");
  }
  MOE_RETURN_IF_ERROR(check_affine_flags(flags, options));
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  return import_packs(options, line.callback());
}

void add_flags(CLI::App& command, ImportFlags& flags) {
  command
      .add_option("directory", flags.directory,
                  "Pack directory, or a model directory: then all its packs and its weights")
      ->required();
  command.add_option("--model", flags.model,
                     "Model directory of the pack, where it is not the one above it");
  command.add_option("--expert-format", flags.expert_format,
                     "Format of the experts, for a pack without a manifest");
  command.add_option("--down-format", flags.down_format,
                     "Format of their down projections, where it differs");
  add_group_size(command, flags.group_size, "Inputs that share a scale, of q formats")
      ->capture_default_str();
  command.add_option("--scale-dtype", flags.scale_dtype, "Type of the scales, of q formats")
      ->check(CLI::IsMember({"bf16", "f16"}))
      ->capture_default_str();
  add_threads(command, flags.threads);
  command.add_flag("--dry-run", flags.dry_run, "Check everything but the data; write nothing");
  add_report_flags(command, flags.json, flags.quiet);
}

}  // namespace

void register_import(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ImportFlags>();
  CLI::App* command =
      app.add_subcommand("import", "Adopt packs and weights of the flash-moe engines");
  add_flags(*command, *flags);
  flags->given = GivenFlags(*command);
  set_reporting_action(*command, action, flags, run, print_summary, print_json);
}

}  // namespace moepack::cli
