#include "convert/cli/cmd_overlay.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "convert/cli/free_space_text.h"
#include "convert/cli/given_flags.h"
#include "convert/cli/number_range.h"
#include "convert/cli/progress.h"
#include "convert/cli/row_order_flag.h"
#include "convert/overlay/overlay.h"
#include "convert/pack/plan.h"

namespace moepack::cli {
namespace {

struct OverlayFlags {
  std::string model;
  std::string gguf;
  std::vector<std::string> tensors;
  std::string name = "Q3";
  std::uint64_t page_size = kDefaultPageSize;
  std::string row_order = "rows";
  std::uint32_t threads = 0;
  bool replace = false;
  bool restart = false;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
  GivenFlags given;
};

constexpr const char* kExperts = "experts";

Status choose(const std::string& name, OverlayOptions& options) {
  if (name == kExperts) {
    options.experts = true;
    return Status::ok();
  }
  const auto group = overlay_group_from_name(name);
  if (!group.has_value()) {
    return invalid_argument("--tensors " + printable(name) + " is no group of tensors",
                            "known are experts, embedding, lm_head, attention, linear_attention "
                            "and shared_experts");
  }
  if (std::find(options.groups.begin(), options.groups.end(), *group) == options.groups.end()) {
    options.groups.push_back(*group);
  }
  return Status::ok();
}

Result<OverlayOptions> options_of(const OverlayFlags& flags) {
  OverlayOptions options;
  options.model = flags.model;
  options.gguf = flags.gguf;
  for (const std::string& name : flags.tensors) MOE_RETURN_IF_ERROR(choose(name, options));
  if (!options.experts) {
    MOE_RETURN_IF_ERROR(flags.given.check_idle(
        {"--name", "--page-size", "--row-order", "--restart"}, "without --tensors experts"));
  }
  if (options.groups.empty()) {
    MOE_RETURN_IF_ERROR(
        flags.given.check_idle({"--replace"}, "for experts alone: they become a new pack"));
  }
  options.name = flags.name;
  options.page_size = flags.page_size;
  options.row_order = row_order_of(flags.row_order);
  options.replace = flags.replace;
  options.restart = flags.restart;
  options.threads = flags.threads;
  return options;
}

void print_json(const OverlayReport& report, const OverlayFlags& flags) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const WrittenOverlay& file : report.overlays) {
    files.push_back({{"file", file.file},
                     {"group", file.group},
                     {"types", file.types},
                     {"matrices", file.matrices},
                     {"bytes", file.bytes},
                     {"kept", file.kept}});
  }
  nlohmann::ordered_json json{{"model", flags.model},
                              {"gguf", report.source},
                              {"dry_run", flags.dry_run},
                              {"overlays", files},
                              {"pack", report.pack}};
  if (!report.pack.empty()) {
    json.update({{"pack_formats", report.pack_formats},
                 {"pack_bytes", report.pack_bytes},
                 {"pack_kept", report.is_pack_kept},
                 {"engine_pack", report.is_engine_pack},
                 {"num_layers", report.num_layers},
                 {"layers_resumed", report.layers_resumed}});
  }
  json.update({{"needed_bytes", report.needed_bytes},
               {"free_bytes", free_space_json(report.free_bytes)},
               {"notes", report.notes},
               {"threads", report.threads}});
  if (!flags.dry_run) json["seconds"] = report.seconds;
  print_json_line(json);
}

void print_summary(const OverlayReport& report, const OverlayFlags& flags) {
  for (const WrittenOverlay& file : report.overlays) {
    std::cerr << file.group << ": " << file.matrices
              << (file.matrices == 1 ? " matrix, " : " matrices, ") << file.types << ", "
              << format_bytes(file.bytes) << " in " << file.file
              << (file.kept ? ", was there already" : "") << "\n";
  }
  if (!report.pack.empty()) {
    std::cerr << "pack " << printable(report.pack) << ": " << report.num_layers << " layers, "
              << report.pack_formats << ", " << format_bytes(report.pack_bytes);
    if (report.is_pack_kept) std::cerr << ", was there already";
    if (report.layers_resumed > 0) {
      std::cerr << "; finished by an earlier run: " << report.layers_resumed;
    }
    std::cerr << "\n";
  }
  for (const std::string& note : report.notes) std::cerr << "note: " << note << "\n";
  if (flags.dry_run) {
    std::cerr << "nothing was written; needed: " << format_bytes(report.needed_bytes)
              << ", free: " << free_space_text(report.free_bytes) << "\n";
  } else {
    std::cerr << format_duration(report.seconds) << "\n";
  }
}

Result<OverlayReport> run(const OverlayFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const OverlayOptions options, options_of(flags));
  if (flags.dry_run) return plan_overlay(options);
  ProgressLine line(stderr_is_terminal(), flags.quiet);
  return overlay_model(options, line.callback());
}

void add_flags(CLI::App& command, OverlayFlags& flags) {
  command.add_option("-m,--model,MODEL", flags.model, "Model directory")->required();
  command
      .add_option("--gguf", flags.gguf, "GGUF file of the same model, or any part of a split one")
      ->required();
  command
      .add_option("--tensors", flags.tensors,
                  "What to take, separated by commas: experts, embedding, lm_head, attention, "
                  "linear_attention, shared_experts")
      ->delimiter(',')
      ->allow_extra_args(false)  // what follows may be MODEL
      ->required();
  command.add_option("--name", flags.name, "Name of the expert pack: packed_experts_NAME")
      ->capture_default_str();
  command
      .add_option("--page-size", flags.page_size,
                  "Expert records start at multiples of this many bytes, a power of two; 1: no "
                  "padding")
      ->check(whole_number(1, kMaxPageSize))
      ->capture_default_str();
  add_row_order(command, flags.row_order);
  command.add_flag("--replace", flags.replace,
                   "Put resident overlays in the place of those there are");
  command.add_flag("--restart", flags.restart, "Drop an interrupted pack of another file");
  command.add_flag("--dry-run", flags.dry_run, "Check everything, write nothing");
  add_threads(command, flags.threads);
  add_report_flags(command, flags.json, flags.quiet);
}

}  // namespace

void register_overlay(CLI::App& app, Action& action) {
  auto flags = std::make_shared<OverlayFlags>();
  CLI::App* command = app.add_subcommand(
      "overlay", "Take experts and resident tensors of a GGUF file over into a model");
  add_flags(*command, *flags);
  flags->given = GivenFlags(*command);
  set_reporting_action(*command, action, flags, run, print_summary, print_json);
}

}  // namespace moepack::cli
